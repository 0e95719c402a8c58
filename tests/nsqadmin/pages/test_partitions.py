"""A topic with several partitions in a real browser: which of them lags, and messages of all."""

from __future__ import annotations

import json
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
    return installation.admin.url(f"/{path}")


def table(page: Page) -> Locator:
    heading = page.get_by_role("heading", name="Partitions", exact=True)
    return page.locator("section.panel").filter(has=heading)


def cell(where: Locator, row: int, name: str) -> Locator:
    return where.locator(f"[row-index='{row}'] [col-id={name}]")


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
