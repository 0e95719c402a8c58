"""A channel's page: the messages inside one by one, dead letters, and replay."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.v2client import V2Client

from ..conftest import HOUR_MS, Installation

_NUMBERS = itertools.count()


@dataclass
class Work:
    """A topic of its own with a channel, and a consumer that answers nothing by itself."""

    installation: Installation
    page: Page
    topic: str
    client: V2Client

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            self.installation.nsqd.post(f"/pub?topic={self.topic}", body)

    def take(self, count: int) -> list[bytes]:
        self.client.rdy(count)
        return [message.id for message in self.client.messages(count)]

    @property
    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.installation.nsqd.channel_stats(self.topic, "work")
        return found

    def open(self) -> None:
        port = self.installation.admin.http_port
        self.page.goto(f"http://127.0.0.1:{port}/topics/{self.topic}/work")
        address = f"127.0.0.1:{self.installation.nsqd.http_port}"
        expect(self.panel("Nodes").get_by_role("link", name=address)).to_be_visible()

    def panel(self, name: str) -> Locator:
        heading = self.page.get_by_role("heading", name=name, exact=True)
        return self.page.locator("section.panel").filter(has=heading)

    def row(self, id: bytes) -> Locator:
        rows = self.panel("Messages inside").get_by_role("row")
        return rows.filter(has_text=id.decode())

    def tick(self, id: bytes) -> None:
        self.row(id).get_by_role("checkbox").check()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def confirm(self) -> None:
        self.page.get_by_label("Type work to confirm").fill("work")
        self.press("Go on")

    def is_done(self) -> None:
        expect(self.page.get_by_text("Done.")).to_be_visible()


@pytest.fixture
def work(installation: Installation, page: Page) -> Iterator[Work]:
    topic = f"inside_{next(_NUMBERS)}"
    with installation.topic(topic, "work") as nsqd, nsqd.client() as client:
        client.identify(client_id="me", hostname="till-7", heartbeat_interval=HOUR_MS)
        client.sub(topic, "work")
        yield Work(installation, page, topic, client)


def test_a_message_in_flight_has_an_owner_and_is_finished(work: Work) -> None:
    work.publish(b"a", b"b")
    first, second = work.take(2)
    work.open()
    expect(work.row(first)).to_contain_text("held by till-7 (127.0.0.1")
    work.press("Finish")
    expect(work.page.get_by_text("Choose messages first")).to_be_visible()
    work.tick(first)
    work.press("Finish")
    work.confirm()
    work.is_done()
    expect(work.row(first)).to_have_count(0)
    expect(work.row(second)).to_be_visible()
    assert work.stats["in_flight_count"] == 1
    work.client.fin(first)
    assert work.client.error().startswith(b"E_FIN_FAILED")
    admin = work.installation.admin
    work.page.goto(admin.url("/audit"))
    expect(work.page.get_by_role("gridcell", name="finish_message").first).to_be_visible()


def test_a_deferred_message_is_sent_now(work: Work) -> None:
    work.publish(b"a")
    (id,) = work.take(1)
    work.client.req(id, 600_000)
    work.open()
    work.press("Deferred")
    expect(work.row(id)).to_contain_text("due 20")
    work.tick(id)
    work.press("Requeue")
    work.press("Go on")
    work.is_done()
    expect(work.row(id)).to_have_count(0)
    (again,) = work.client.messages(1)
    assert (again.id, again.attempts) == (id, 2)


def test_dead_letters_are_looked_at_and_sent_back(work: Work) -> None:
    work.installation.nsqd.post(f"/channel/config?topic={work.topic}&channel=work&max_attempts=1")
    work.publish(b"a", b'{"order": 12}')
    first, second = work.take(2)
    for id in (first, second):
        work.client.req(id)
    work.open()
    tile = work.page.locator(".tile", has_text="Dead letters")
    expect(tile).to_contain_text("wait; 2 since start")
    expect(tile.locator(".number")).to_have_text("2")
    work.press("Dead letters")
    expect(work.row(second)).to_contain_text(
        'sent 1 time and never finished, at last its consumer requeued it: {"order": 12}'
    )
    expect(work.row(second)).to_contain_text("published 20")
    link = work.row(second).get_by_role("link").get_attribute("href") or ""
    assert f"/messages/{work.topic}.work.dead?node=" in link
    work.tick(second)
    work.press("Redrive")
    work.is_done()
    expect(work.row(second)).to_have_count(0)
    assert [message.id for message in work.client.messages(1)] == [second]
    work.press("Redrive all")
    work.press("Go on")
    expect(work.row(first)).to_have_count(0)
    expect(tile.locator(".number")).to_have_text("0")  # now; since start it is 2 as before
    assert [message.id for message in work.client.messages(1)] == [first]


def test_replay_shows_first_and_moves_then(work: Work) -> None:
    work.publish(b"a", b"b", b"c")
    work.client.fin(*work.take(3))
    work.client.settle()
    work.open()
    replay = work.panel("Replay")
    replay.get_by_label("2026-11-21 06:00 (UTC)").fill("tomorrow")
    work.press("Preview")
    expect(replay.get_by_text("'tomorrow' is no time")).to_be_visible()
    replay.get_by_label("2026-11-21 06:00 (UTC)").fill("2001-01-01")
    work.press("Preview")
    expect(replay.get_by_text("From offset 0: 3 messages would come again.")).to_be_visible()
    replay.get_by_label("To", exact=True).click()
    work.page.get_by_role("option", name="Back this many messages").click()
    replay.get_by_label("How many").fill("2")
    work.press("Preview")
    expect(replay.get_by_text("From offset 1: 2 messages would come again.")).to_be_visible()
    assert work.stats["depth"] + work.stats["in_flight_count"] == 0
    replay.get_by_role("button", name="Move it on").click()
    expect(work.page.get_by_role("button", name="Go on")).to_be_disabled()
    work.confirm()
    work.is_done()
    assert [message.body for message in work.client.messages(2)] == [b"b", b"c"]
    work.press("Delete")
    expect(work.page.get_by_text("It cuts off 1 consumer: who connects again")).to_be_visible()
