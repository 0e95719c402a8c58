import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from penstock.command import logs

log = logging.getLogger("penstock.nsqd")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    logger = logging.getLogger("penstock")
    level = logger.level
    yield io.StringIO()
    logger.setLevel(level)


def test_lines_look_like_those_of_nsqd(stream: io.StringIO) -> None:
    with logs.shown("debug", "[nsqd] ", "text", stream):
        log.debug("a")
        log.info("ID: %d", 617)
        log.warning("b")
        log.error("c")
        log.critical("d")
    lines = stream.getvalue().splitlines()
    moment = r"\[nsqd\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} "
    expected = ["DEBUG: a", "INFO: ID: 617", "WARNING: b", "ERROR: c", "FATAL: d"]
    assert len(lines) == len(expected)
    for line, end in zip(lines, expected, strict=True):
        assert re.fullmatch(moment + end, line)


def test_json(stream: io.StringIO) -> None:
    with logs.shown("info", "[nsqd] ", "json", stream):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it %s", "happened")
    row = json.loads(stream.getvalue())
    assert list(row) == ["time", "level", "logger", "text", "exception"]
    assert (row["level"], row["logger"], row["text"]) == ("ERROR", "penstock.nsqd", "it happened")
    assert "ValueError: broken" in row["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["time"])


def test_a_traceback_stands_in_the_text(stream: io.StringIO) -> None:
    with logs.shown("info", "", "text", stream):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it happened")
    assert "ERROR: it happened\nTraceback" in stream.getvalue()
