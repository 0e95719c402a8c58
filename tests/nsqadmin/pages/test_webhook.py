"""Every official action by clicks: what the receiver of notifications is told, and what is done."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from ..elsewhere import Elsewhere
from ..official import Calls, Lookupd, Nsqd, channel
from ..running import Admin


class Site(NamedTuple):
    nsqd: Nsqd
    lookupd: Lookupd
    hook: Elsewhere
    admin: Admin

    def told(self) -> dict[str, Any]:
        """The next document, without what is different each time."""
        method, at, body = self.hook.next()
        assert (method, at) == ("POST", "/hook")
        document: dict[str, Any] = json.loads(body)
        assert document.pop("timestamp") > 1_700_000_000
        assert document.pop("remote_ip").startswith("127.0.0.1:")
        assert "Chrome" in document.pop("user_agent")
        assert document.pop("via") == socket.gethostname()
        return document


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    calls = Calls()
    with ExitStack() as stack:
        hook = stack.enter_context(Elsewhere())
        nsqd = stack.enter_context(Nsqd("nsqd", calls))
        lookupd = stack.enter_context(Lookupd("lookupd", calls, [nsqd]))
        flags = (f"-lookupd-http-address={lookupd.address}",
                 f"-notification-http-endpoint={hook.url}/hook")  # fmt: skip
        path = tmp_path_factory.mktemp("webhook") / "admin"
        yield Site(nsqd, lookupd, hook, stack.enter_context(Admin(path, *flags)))


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    running.nsqd.topics.clear()
    running.nsqd.put("orders", {"mail": channel(depth=3)}, depth=2)
    yield running
    assert running.hook.asked.empty()  # nothing is told twice


def press(page: Page, name: str, typed: str = "") -> None:
    page.get_by_role("button", name=name, exact=True).click()
    if typed:
        page.get_by_label(f"Type {typed} to confirm").fill(typed)
        page.get_by_role("button", name="Go on").click()


def test_actions_on_a_topic_and_a_channel(page: Page, site: Site) -> None:
    for path, about, kind in (("/topics/orders/mail", {"channel": "mail"}, "channel"),
                              ("/topics/orders", {}, "topic")):  # fmt: skip
        page.goto(site.admin.url(path))
        for button, typed in (("Pause", ""), ("Unpause", ""), ("Empty", path[8:].split("/")[-1]),
                              ("Delete", path[8:].split("/")[-1])):  # fmt: skip
            press(page, button, typed)
            assert site.told() == {
                "action": f"{button.lower()}_{kind}", "topic": "orders", **about,
                "url": site.admin.url(path),
            }, (path, button)  # fmt: skip
        expect(page).not_to_have_url(site.admin.url(path))
    assert site.nsqd.topics == {}


def test_making_tombstoning_and_publishing(page: Page, site: Site) -> None:
    page.goto(site.admin.url("/lookup"))
    page.get_by_label("Topic", exact=True).fill("fresh")
    page.get_by_label("Channel (optional)").fill("c")
    press(page, "Make")
    at = {"url": site.admin.url("/lookup")}
    assert site.told() == {"action": "create_topic", "topic": "fresh", **at}
    assert site.told() == {"action": "create_channel", "topic": "fresh", "channel": "c", **at}
    path = f"/nodes/{site.nsqd.address}"
    page.goto(site.admin.url(path))
    page.get_by_label("Topic", exact=True).fill("orders")
    press(page, "Delete there", "orders")
    assert site.told() == {
        "action": "tombstone_topic_producer", "topic": "orders", "node": site.nsqd.address,
        "url": site.admin.url(path),
    }  # fmt: skip
    assert "orders" not in site.nsqd.topics
