"""SIGINT and SIGTERM end a pipeline after the batch at hand; a second one ends it at once.

That is safe too: what a batch has not committed is not there, and is done again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.pipelines.progress import Progress

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(progress: Progress) -> Iterator[Callable[[], None]]:
    """Gives a function that sets the handlers again, after somebody else has set his."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if progress.stopping:
            os._exit(128 + number)
        progress.ask_to_stop()

    def take_over() -> None:
        for number in _NUMBERS:
            signal.signal(number, on_signal)

    before = [signal.getsignal(number) for number in _NUMBERS]
    take_over()
    try:
        yield take_over
    finally:
        for number, handler in zip(_NUMBERS, before, strict=True):
            signal.signal(number, handler)
