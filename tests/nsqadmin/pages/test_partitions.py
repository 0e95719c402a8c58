"""A topic with several partitions in a real browser: which of them lags, and messages of all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.daemon import Daemon
from penstock.kernel import encode_batch

from ..conftest import Installation

TOPIC = "split"
COUNTS = (2, 36, 2)  # nine of ten messages in one of them
HEAVY = 1


def fill(nsqd: Daemon, topic: str) -> None:
    """A message's body says where it is: `1:35`."""
    stages = []
    for partition, count in enumerate(COUNTS):
        bodies = [b"%d:%d" % (partition, number) for number in range(count)]
        place = f"topic={topic}&partition={partition}&stage=s{partition}"
        nsqd.post(f"/stage?{place}", encode_batch(bodies, 0, 0, 0))
        stages.append({"topic": topic, "partition": partition, "stage": f"s{partition}"})
    nsqd.post(f"/stage/commit?app=test-{topic}&version=1", json.dumps({"stages": stages}).encode())


@pytest.fixture(scope="module", autouse=True)
def split(installation: Installation) -> Iterator[None]:
    """Channel `slow` has not come to anything in partition 1, and has all of the others."""
    nsqd = installation.nsqd
    nsqd.post(f"/topic/create?topic={TOPIC}&partition_num={len(COUNTS)}")
    fill(nsqd, TOPIC)
    for channel in ("quick", "slow"):
        nsqd.post(f"/channel/create?topic={TOPIC}&channel={channel}")
        nsqd.post(f"/channel/empty?topic={TOPIC}&channel={channel}")
    back = f"/channel/setoffset?topic={TOPIC}&channel=slow&partition={HEAVY}"
    nsqd.post(back, b"earliest")
    installation.wait_for_topic(TOPIC)
    yield
    nsqd.post(f"/topic/delete?topic={TOPIC}")


def url(installation: Installation, path: str) -> str:
    return f"http://127.0.0.1:{installation.admin.http_port}/{path}"


def table(page: Page) -> Locator:
    heading = page.get_by_role("heading", name="Partitions", exact=True)
    return page.locator("section.panel").filter(has=heading)


def cell(where: Locator, row: int, name: str) -> Locator:
    return where.locator(f"[row-index='{row}'] [col-id={name}]")


def test_the_topic_has_a_table_of_its_partitions(page: Page, installation: Installation) -> None:
    page.goto(url(installation, f"topics/{TOPIC}"))
    parts = table(page)
    for partition, count in enumerate(COUNTS):
        expect(cell(parts, partition, "partition")).to_have_text(str(partition))
        expect(cell(parts, partition, "messages")).to_have_text(str(count))
    expect(cell(parts, HEAVY, "waits")).to_have_text("36")
    expect(cell(parts, HEAVY, "behind")).to_have_text("slow: 36")
    expect(cell(parts, HEAVY, "end")).to_have_text("36")
    expect(cell(parts, 0, "waits")).to_have_text("0")


def test_the_channel_says_where_it_lags_and_the_figures_live(
    page: Page, installation: Installation
) -> None:
    page.goto(url(installation, f"topics/{TOPIC}/slow"))
    parts = table(page)
    expect(cell(parts, HEAVY, "depth")).to_have_text("36")
    expect(cell(parts, 0, "depth")).to_have_text("0")
    expect(page.get_by_text("Partition 1 has 36 of the 36 that wait.")).to_be_visible()
    move = f"/channel/setoffset?topic={TOPIC}&channel=slow&partition={HEAVY}"
    installation.nsqd.post(move, b"back:5")
    expect(cell(parts, HEAVY, "depth")).to_have_text("5")
    installation.nsqd.post(move, b"earliest")
    expect(cell(parts, HEAVY, "depth")).to_have_text("36")


def test_messages_of_all_partitions_and_of_one(page: Page, installation: Installation) -> None:
    page.goto(url(installation, f"messages/{TOPIC}"))
    expect(page.get_by_text("40 messages")).to_be_visible()
    page.get_by_label("Partition", exact=True).click()
    page.get_by_role("option", name="2", exact=True).click()
    expect(page.get_by_text("2 messages, offset 0 to 1")).to_be_visible()
    expect(page).to_have_url(re.compile("partition=2"))
    page.get_by_role("gridcell", name="2:1", exact=True).click()
    expect(page.locator("pre.body")).to_have_text("2:1")
    expect(page.get_by_text("partition 2")).to_be_visible()


def test_messages_of_a_topic_that_was_just_made(page: Page, installation: Installation) -> None:
    """nsqadmin has not looked at the nodes since: the page asks them itself."""
    nsqd = installation.nsqd
    nsqd.post(f"/topic/create?topic=fresh&partition_num={len(COUNTS)}")
    fill(nsqd, "fresh")
    page.goto(url(installation, "messages/fresh"))
    expect(page.get_by_text("40 messages")).to_be_visible()
    nsqd.post("/topic/delete?topic=fresh")


def test_a_message_is_found_by_id_wherever_it_is(page: Page, installation: Installation) -> None:
    place = f"/message/get?topic={TOPIC}&partition={HEAVY}&offset=30"
    id = json.loads(installation.nsqd.http("GET", place)[1])["id"]
    page.goto(url(installation, f"messages/{TOPIC}?at={id}"))
    expect(page.get_by_text("6 messages, offset 30 to 35")).to_be_visible()
    expect(page.get_by_role("gridcell", name="1:30", exact=True)).to_be_visible()
    page.goto(url(installation, f"messages/{TOPIC}?at=7"))
    expect(page.get_by_text("choose a partition first")).to_be_visible()
