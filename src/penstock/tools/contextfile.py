"""The file of contexts: `penstock/contexts.toml` below the user's directory of configurations.

It is private, and replaced as a whole by a rename: a reader sees the old one or the new one. Two
commands that change it at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.tools import wholefile
from penstock.tools.contexts import Contexts, ContextTrouble, read, to_text

VARIABLE = "PENSTOCK_CONTEXT"


def path() -> Path:
    above = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(above):  # the specification says that a relative one does not count
        above = os.path.expanduser("~/.config")
    return Path(above) / "penstock" / "contexts.toml"


def load() -> Contexts:
    """Raises ContextTrouble when it is damaged; no file is no context."""
    place = path()
    try:
        return read(place.read_bytes().decode())
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ContextTrouble(f"{place} cannot be read: {error}") from error
    except ContextTrouble as error:
        raise ContextTrouble(f"{place} is corrupt: {error}; repair it, or move it away") from error


@contextmanager
def changed() -> Iterator[Contexts]:
    """What is in the file, written back when the block ends without an error."""
    place = Path(os.path.realpath(path()))  # who links it elsewhere keeps the link
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        contexts = load()
        yield contexts
        wholefile.replace(place, to_text(contexts).encode())
        os.fsync(directory)
    finally:
        os.close(directory)
