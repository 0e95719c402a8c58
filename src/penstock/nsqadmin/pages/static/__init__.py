"""The scripts and sheets of the pages, in files of their own beside this one. They are put into the
pages as they are, so that a page needs no other request for them.
"""

from functools import cache
from importlib import resources


@cache
def text(name: str) -> str:
    """The text of a file here, without its last newline."""
    return resources.files(__name__).joinpath(name).read_text("utf-8").rstrip("\n")
