"""Spark gives a Python that it starts for a stream ten seconds to come back, and nothing can be set
to give it more. A machine on which others work may take longer; then the query is started again,
from its checkpoint, as a supervisor would do."""

from collections.abc import Callable
from typing import TypeVar

LATE = "Python worker failed to connect back"
TRIES = 4
_Found = TypeVar("_Found")


def patiently(run: Callable[[], _Found]) -> _Found:
    for left in reversed(range(TRIES)):
        try:
            return run()
        except Exception as error:
            if not left or LATE not in str(error):
                raise
    raise AssertionError("the last try has returned or raised")
