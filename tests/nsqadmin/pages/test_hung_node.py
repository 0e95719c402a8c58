"""One of two real nsqds is stopped in its tracks: its topics stay, its figures say how old they
are, nothing of it can be deleted, and the other one is shown and worked on as ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually

from ..running import Admin


class Site(NamedTuple):
    live: Daemon
    hung: Daemon
    admin: Admin

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.admin.http_port}{path}"

    @property
    def hung_address(self) -> str:
        return f"127.0.0.1:{self.hung.http_port}"


@contextmanager
def stopped(nsqd: Daemon) -> Iterator[None]:
    os.kill(nsqd.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(nsqd.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("hung")
    with ExitStack() as stack:
        lookupd = stack.enter_context(Lookupd(path / "lookupd"))
        told = (f"-lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
                "-broadcast-address=127.0.0.1")  # fmt: skip
        live, hung = (stack.enter_context(Daemon(path / name, *told)) for name in ("live", "hung"))
        for nsqd in (live, hung):
            nsqd.post("/topic/create?topic=both")
            nsqd.post("/pub?topic=both", b"x")
        hung.post("/topic/create?topic=lonely")
        lookupd.http("POST", "/topic/create?topic=idle")
        asked = f"-lookupd-http-address=127.0.0.1:{lookupd.http_port}"
        with stopped(hung):
            admin = stack.enter_context(
                Admin(path / "admin", asked, "-http-client-request-timeout=2s")
            )
            yield Site(live, hung, admin)


def test_a_topic_whose_only_node_is_silent_is_not_idle(page: Page, site: Site) -> None:
    page.goto(site.url("/lookup"))
    idle = page.locator("section", has_text="Topics that no nsqd has")
    expect(idle.locator(".heading", has_text="idle")).to_be_visible()
    expect(idle).not_to_contain_text("lonely")
    page.goto(site.url("/topics/lonely"))
    expect(page.locator(".saying")).to_contain_text("does not answer, so nothing is known")
    for label in ("Empty", "Delete", "Pause"):
        expect(page.get_by_role("button", name=label)).to_be_hidden()
    page.goto(site.url(f"/nodes/{site.hung_address}"))
    expect(page.get_by_text("It does not answer: timed out")).to_be_visible()
    expect(page.get_by_role("button", name="Delete there")).to_be_hidden()
    status, body, _ = site.admin.request("DELETE", "/api/topics/lonely")
    assert (status, b"timed out" in body) == (502, True)
    assert "lonely" in site.admin.json("GET", "/api/topics")["topics"]


def test_a_node_that_hangs_slows_nobody_and_comes_back(page: Page, site: Site) -> None:
    page.goto(site.url("/topics/both"))
    tile = page.locator(".tile").filter(has=page.get_by_text("Messages", exact=True))
    messages = tile.locator(".number")
    expect(messages).to_have_text("1")
    site.live.post("/pub?topic=both", b"x")
    expect(messages).to_have_text("2", timeout=1900)  # sooner than the other one times out
    row = page.get_by_role("row").filter(has_text=site.hung_address)
    expect(row).to_contain_text("node down")
    page.get_by_role("button", name="Pause", exact=True).click()
    said = page.get_by_text(f"paused on 1 of 2: {site.hung_address}: timed out")
    expect(said).to_be_visible()
    os.kill(site.hung.pid, signal.SIGCONT)  # and it reads what was sent to it meanwhile
    eventually(lambda: bool(site.hung.topic_stats("both")["paused"]))
    site.hung.post("/topic/unpause?topic=both")
    expect(page.locator(".badge", has_text="paused on 1 of 2")).to_be_visible()
    expect(page.get_by_role("button", name="Unpause", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    expect(messages).to_have_text("3")
    expect(row).not_to_contain_text("node down")
    os.kill(site.hung.pid, signal.SIGSTOP)
    expect(row).to_contain_text("node down, ")
    page.goto(site.url("/topics/lonely"))
    expect(page.locator(".below.stale")).to_be_visible()
    expect(page.locator(".banner")).to_contain_text("Its figures are")
    expect(page.get_by_role("button", name="Delete")).to_be_hidden()
    os.kill(site.hung.pid, signal.SIGCONT)
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    expect(page.locator(".below.stale")).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type lonely to confirm").fill("lonely")
    page.get_by_role("button", name="Go on").click()
    page.wait_for_url("**/topics")
    assert "lonely" not in site.admin.json("GET", "/api/topics")["topics"]
