"""Log lines in NSQ's form (`[nsqd] 2026/11/20 23:27:17.123456 INFO: text`) or as JSON, on
stderr.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from penstock.command.flags import LOG_LEVELS

_LEVELS = dict(zip(LOG_LEVELS, range(logging.DEBUG, logging.CRITICAL + 1, 10), strict=True))
_WORDS = {logging.CRITICAL: "FATAL"}


def _word(level: int) -> str:
    return _WORDS.get(level) or logging.getLevelName(level)


class TextFormatter(logging.Formatter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{self._prefix}{moment}.{micros:06d} {_word(record.levelno)}: {text}"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        row = {
            "time": f"{moment}.{int(record.created % 1 * 1_000_000):06d}Z",
            "level": _word(record.levelno),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)


@contextmanager
def shown(level: str, prefix: str, form: str, stream: TextIO | None = None) -> Iterator[None]:
    """Everything below the logger `penstock` goes to `stream` (stderr)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(prefix))
    logger = logging.getLogger("penstock")
    logger.setLevel(_LEVELS[level])
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
        handler.close()


def set_level(level: str) -> None:
    """One of LOG_LEVELS, from now on."""
    logging.getLogger("penstock").setLevel(_LEVELS[level])
