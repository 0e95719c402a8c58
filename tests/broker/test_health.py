from __future__ import annotations

import logging

import pytest

from penstock import limits
from penstock.broker.health import Health, Trouble


def test_health_is_ok_until_there_is_trouble_and_after_it() -> None:
    health = Health()
    assert (health.text, health.failing) == ("OK", False)
    health.report("news", Trouble.WRITE, "no space")
    health.report("other", Trouble.DAMAGED, "corrupt")
    said = "NOK - topic news: no space; topic other: corrupt"
    assert (health.text, health.failing) == (said, True)
    health.clear("news", Trouble.DAMAGED)  # another kind
    assert health.text == said
    health.clear("news", Trouble.WRITE)
    assert health.text == "NOK - topic other: corrupt"
    health.forget("other")
    assert health.text == "OK"


def test_a_warning_is_ok_and_comes_last() -> None:
    health = Health()
    health.report("news", Trouble.CORRUPT, "offsets 3 to 4 are corrupt")
    assert health.text == "OK - warning: topic news: offsets 3 to 4 are corrupt"
    assert not health.failing
    health.report("", Trouble.DISK_LOW, "disk almost full")
    assert health.text == "NOK - disk almost full; topic news: offsets 3 to 4 are corrupt"
    assert health.failing


def test_a_line_names_a_few_and_counts_the_rest() -> None:
    health = Health()
    for number in range(limits.PING_REASONS_MAX + 2):
        health.report(f"t{number}", Trouble.WRITE, "no space")
    assert health.text.startswith("NOK - topic t0: no space; topic t1: no space; ")
    assert health.text.endswith(f"topic t{limits.PING_REASONS_MAX - 1}: no space; and 2 more")


def test_the_same_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    with caplog.at_level(logging.INFO, "penstock.broker"):
        for _ in range(3):
            health.report("news", Trouble.WRITE, "no space")
        health.clear("news", Trouble.WRITE)
        health.clear("news", Trouble.WRITE)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
