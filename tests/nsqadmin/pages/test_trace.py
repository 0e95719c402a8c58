"""Tracing switched on by hand, and a message's life as a timeline."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from e2e.lookupd import eventually

from ..conftest import Installation
from ..running import Admin

TOPIC = "letters"


@pytest.fixture(scope="module", autouse=True)
def letters(installation: Installation) -> Iterator[None]:
    with installation.topic(TOPIC, "post"):
        yield


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
    eventually(lambda: "finished" in shown(page, installation.admin, message.id.decode()))
    for kind in ("published", "sent", "finished"):
        expect(page.locator(".life .badge", has_text=kind)).to_be_visible()
        expect(page.locator(f".track .dot[aria-label^={kind}]")).to_have_count(1)
    expect(page.get_by_role("link", name=f"{TOPIC}/post").first).to_be_visible()
    expect(page.locator(".told")).to_contain_text("sent to post once, finished after")
    page.get_by_role("link", name="The message itself").click()
    expect(page.locator("pre.body")).to_have_text("dear")
    wait_for_log(installation)
    page.goto(installation.admin.url("/trace"))
    page.get_by_role("link", name=message.id.decode()).click()
    expect(page.locator(".told")).to_be_visible()


def shown(page: Page, admin: Admin, message_id: str) -> str:
    page.goto(admin.url(f"/trace?id={message_id}"))
    status = page.get_by_role("status").filter(has_text=re.compile("event|has nothing|Neither"))
    expect(status.first).to_be_visible()
    expect(page.get_by_text("looking into the table")).to_have_count(0)
    return page.locator("main").last.inner_text()


def wait_for_log(installation: Installation) -> None:
    """Until all that is committed is in the log's files, where a pipeline finds it."""

    def is_stored() -> bool:
        _, body = installation.nsqd.http("GET", "/log/positions?topic=_trace")
        partition = json.loads(body)["topics"]["_trace"]["partitions"]["0"]
        return bool(0 < partition["end"] == partition["committed"])

    eventually(is_stored)
