from __future__ import annotations

import logging

import pytest

from penstock.broker.health import Health, Trouble


def test_health_is_ok_until_there_is_trouble_and_after_it() -> None:
    health = Health()
    assert (health.text, health.troubled) == ("OK", False)
    health.report("news", Trouble.WRITE, "no space")
    health.report("other", Trouble.DAMAGED, "hurt")
    assert (health.text, health.troubled) == ("NOK - no space", True)
    health.clear("news", Trouble.DAMAGED)  # another kind
    assert health.text == "NOK - no space"
    health.clear("news", Trouble.WRITE)
    assert health.text == "NOK - hurt"
    health.forget("other")
    assert health.text == "OK"


def test_the_same_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    with caplog.at_level(logging.INFO, "penstock.broker"):
        for _ in range(3):
            health.report("news", Trouble.WRITE, "no space")
        health.clear("news", Trouble.WRITE)
        health.clear("news", Trouble.WRITE)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
