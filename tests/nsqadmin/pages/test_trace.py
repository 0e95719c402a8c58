"""Tracing switched on by hand, and a message's life as a timeline."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from ..conftest import Installation

TOPIC = "letters"


@pytest.fixture(scope="module", autouse=True)
def letters(installation: Installation) -> Iterator[None]:
    installation.nsqd.post(f"/topic/create?topic={TOPIC}")
    installation.nsqd.post(f"/channel/create?topic={TOPIC}&channel=post")
    installation.wait_for_topic(TOPIC)
    yield
    installation.nsqd.post(f"/topic/delete?topic={TOPIC}")


def url(installation: Installation, path: str) -> str:
    return f"http://127.0.0.1:{installation.admin.http_port}{path}"


def traced_rate(installation: Installation, path: str) -> float:
    _, body = installation.nsqd.http("GET", path)
    return float(json.loads(body)["trace_rate"])


@pytest.mark.parametrize(
    ("page_path", "config_path"),
    [
        (f"/topics/{TOPIC}/post", f"/channel/config?topic={TOPIC}&channel=post"),
        (f"/topics/{TOPIC}", f"/topic/config?topic={TOPIC}"),
    ],
)
def test_a_life_begins_with_a_switch(
    page: Page, installation: Installation, page_path: str, config_path: str
) -> None:
    page.goto(url(installation, page_path))
    rate = page.get_by_label("Of all messages, %")
    expect(rate).to_have_value("0")
    rate.fill("100")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Done.")).to_be_visible()
    assert traced_rate(installation, config_path) == 1.0


def test_a_timeline(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    nsqd.post(f"/message/trace/enable?topic={TOPIC}")
    nsqd.post(f"/message/trace/enable?topic={TOPIC}&channel=post")
    nsqd.post(f"/pub?topic={TOPIC}", b"dear")
    with nsqd.client() as client:
        client.sub(TOPIC, "post")
        client.rdy(1)
        message = client.message()
        assert message is not None
        client.fin(message.id)
        client.settle()
    deadline_s = time.monotonic() + 20
    while "finished" not in shown(page, installation, message.id.decode()):
        assert time.monotonic() < deadline_s
    for kind in ("published", "sent", "finished"):
        expect(page.locator(".life .badge", has_text=kind)).to_be_visible()
    expect(page.get_by_role("link", name=f"{TOPIC}/post").first).to_be_visible()


def shown(page: Page, installation: Installation, message_id: str) -> str:
    page.goto(url(installation, f"/trace?id={message_id}"))
    status = (
        page.get_by_role("status")
        .filter(has_text="event")
        .or_(page.get_by_text("Nothing is known of it"))
    )
    expect(status.first).to_be_visible()
    return page.locator("main").last.inner_text()


def test_what_is_no_id_says_so(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "/trace?id=nonsense"))
    expect(page.get_by_text("'nonsense' is neither a message id")).to_be_visible()
