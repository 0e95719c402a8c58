"""The settings of a topic and a channel on their pages, and who may change which."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ..conftest import Installation
from ..running import Admin

TOPIC = "settled"


@pytest.fixture(scope="module", autouse=True)
def settled(installation: Installation) -> Iterator[None]:
    with installation.topic(TOPIC, "ch"):
        yield


def url(admin: Admin, path: str = f"/topics/{TOPIC}") -> str:
    return admin.url(path)


def config(installation: Installation, path: str = f"/topic/config?topic={TOPIC}") -> Any:
    return json.loads(installation.nsqd.http("GET", path)[1])


def save(page: Page) -> None:
    page.get_by_role("button", name="Save settings").click()


def test_a_topic(page: Page, installation: Installation) -> None:
    page.goto(url(installation.admin))
    depth = page.get_by_label("Maximum depth")
    expect(depth).to_have_attribute("placeholder", "0 by default")
    depth.fill("many")
    save(page)
    expect(page.get_by_text("INVALID_ARG_MAX_DEPTH 'many': a whole number")).to_be_visible()
    assert config(installation)["own"] == []
    depth.fill("5000")
    page.get_by_label("Traced share, 0 to 1").fill("0.5")
    save(page)
    expect(page.get_by_text("Done.")).to_be_visible()
    expect(page.get_by_text("chosen here")).to_have_count(2)
    assert (config(installation)["max_depth"], config(installation)["trace_rate"]) == (5000, 0.5)
    depth.fill("")
    save(page)
    expect(page.get_by_text("chosen here")).to_have_count(1)
    assert config(installation)["own"] == ["trace_rate"]
    page.get_by_role("button", name="What nsqd's flags decide").click()
    expect(page.get_by_text("Message timeout")).to_be_visible()
    page.goto(url(installation.admin, "/audit"))
    row = page.get_by_role("row").filter(has_text="configure_topic")
    expect(row.filter(has_text="max_depth=5000, trace_rate=0.5").first).to_be_visible()
    expect(row.filter(has_text="'many': a whole number").first).to_be_visible()
