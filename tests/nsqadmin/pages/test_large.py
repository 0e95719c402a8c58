"""5,000 topics, and a node that dies while it is watched."""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon

from ..running import Admin

TOPICS = 5000
MEMORY = Path("/dev/shm")
MEMORY_FREE_BYTES = 4 << 30
RESIDENT_MB_MAX = 150


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory, if it can be: the topics are 35,000 syncs, and none of the tests is about them."""
    is_roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_FREE_BYTES
    place = MEMORY if is_roomy else tmp_path_factory.mktemp("large")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def large(path: Path) -> Iterator[tuple[Daemon, Admin]]:
    with Daemon(path / "nsqd", "--durability=os") as nsqd:
        connection = http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=60)
        for number in range(TOPICS):
            connection.request("POST", f"/topic/create?topic=topic_{number:04d}")
            assert connection.getresponse().read() == b""
        connection.close()
        with Admin(path / "admin", f"-nsqd-http-address=127.0.0.1:{nsqd.http_port}") as admin:
            yield nsqd, admin


def resident_mb(admin: Admin) -> float:
    status = Path(f"/proc/{admin.pid}/status").read_text()
    line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.timeout(400)
def test_thousands_of_topics_stay_quick(page: Page, large: tuple[Daemon, Admin]) -> None:
    nsqd, admin = large
    page.goto(f"http://127.0.0.1:{admin.http_port}/topics")
    expect(page.get_by_text(f"{TOPICS:,}", exact=True)).to_be_visible()
    page.get_by_label("Search topics").fill("topic_4321")
    expect(page.get_by_role("link", name="topic_4321")).to_be_visible()
    nsqd.post("/pub?topic=topic_4321", b"x")
    row = page.get_by_role("row").filter(has_text="topic_4321")
    expect(row.locator("[col-id=backlog]")).to_have_text("1")
    assert resident_mb(admin) < RESIDENT_MB_MAX


def test_a_node_that_dies_is_named_and_the_page_stays(
    page: Page, large: tuple[Daemon, Admin]
) -> None:
    nsqd, admin = large
    address = f"127.0.0.1:{nsqd.http_port}"
    page.goto(f"http://127.0.0.1:{admin.http_port}/")
    expect(page.locator(".tile", has_text="Nodes")).to_contain_text("1 of 1")
    nsqd.kill()
    expect(page.locator(".banner")).to_contain_text(f"{address} does not answer")
    expect(page.get_by_role("link", name=f"node {address} does not answer")).to_be_visible()
    page.goto(f"http://127.0.0.1:{admin.http_port}/topics/topic_0001")
    expect(page.get_by_role("heading", name="topic_0001")).to_be_visible()
    page.goto(f"http://127.0.0.1:{admin.http_port}/messages/topic_0001")
    expect(page.get_by_role("status").first).to_be_visible()
    status, body, _ = admin.request("GET", "/api/topics")
    assert status == 502
    assert "failed to query any nsqd" in json.loads(body)["message"]
