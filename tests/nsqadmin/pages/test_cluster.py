"""Three nsqds and two nsqlookupds: a node that dies with a topic that others do not have; and every
page under a base path."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually
from penstock.nsqadmin.pages import bar

from ..running import Admin

BASE = "/tools/nsq"


class Cluster(NamedTuple):
    lookupds: list[Lookupd]
    nsqds: list[Daemon]
    admin: Admin

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.admin.http_port}{BASE}{path}"

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.nsqds[number].http_port}"

    def wait_for_nodes(self, topic: str, count: int) -> None:
        """Until both nsqlookupds know so many nodes of it."""
        eventually(lambda: all(_count(one, topic) == count for one in self.lookupds))


def _count(lookupd: Lookupd, topic: str) -> int:
    status, body = lookupd.http("GET", f"/lookup?topic={topic}")
    return len(json.loads(body)["producers"]) if status == 200 else 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        lookupds = [stack.enter_context(Lookupd(path / f"lookupd_{one}")) for one in range(2)]
        flags = [f"-lookupd-tcp-address=127.0.0.1:{one.tcp_port}" for one in lookupds]
        asked = [f"-lookupd-http-address=127.0.0.1:{one.http_port}" for one in lookupds]
        nsqds = [
            stack.enter_context(
                Daemon(path / f"nsqd_{one}", *flags, "-broadcast-address=127.0.0.1")
            )
            for one in range(3)
        ]
        admin = stack.enter_context(Admin(path / "admin", *asked, f"-base-path={BASE}"))
        yield Cluster(lookupds, nsqds, admin)


def test_every_page_is_below_the_base_path(page: Page, cluster: Cluster) -> None:
    paths = [path for path, _, _ in bar.SECTIONS]
    paths += ["/topics/wide", "/topics/wide/all", "/messages/wide", f"/nodes/{cluster.address(0)}"]
    cluster.nsqds[0].make("wide", "all")
    cluster.wait_for_nodes("wide", 1)
    failed: list[str] = []
    page.on("response", lambda one: failed.append(one.url) if one.status >= 400 else None)
    for path in paths:
        page.goto(cluster.url(path.rstrip("/")))
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_function("window.did_handshake")
        links = page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href'))")
        wrong = [one for one in links if one.startswith("/") and one.count(BASE) != 1]
        assert (wrong, any(one.startswith(BASE) for one in links)) == ([], True)
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("h1")).to_have_text("Overview")
    assert failed == []


def test_a_node_that_crashed_is_remembered_until_it_is_forgotten(
    page: Page, cluster: Cluster
) -> None:
    last, address = cluster.nsqds[2], cluster.address(2)
    for number in range(4):
        last.post("/pub?topic=only_there", b"%d" % number)
    cluster.wait_for_nodes("only_there", 1)
    page.goto(cluster.url(f"/nodes/{address}"))
    expect(page.get_by_role("link", name="only_there")).to_be_visible()
    last.kill()
    cluster.wait_for_nodes("only_there", 0)
    page.goto(cluster.url(""))
    expect(page.get_by_text("2 of 3")).to_be_visible()
    expect(page.get_by_text(f"Node {address} does not answer")).to_be_visible()
    expect(page.get_by_text("On no other node: only_there.")).to_be_visible()
    page.goto(cluster.url("/lookup"))
    expect(page.locator(".heading", has_text="only_there")).to_have_count(0)
    page.goto(cluster.url("/topics/only_there"))
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("has 4 messages of it on its disk: it brings the topic back")
           ).to_be_visible()  # fmt: skip
    page.get_by_role("button", name="Cancel").click()
    page.goto(cluster.url(f"/nodes/{address}"))
    expect(page.get_by_role("link", name="only_there")).to_be_visible()
    page.get_by_role("button", name="Forget this node").click()
    page.get_by_label(f"Type {address} to confirm").fill(address)
    page.get_by_role("button", name="Go on").click()
    page.wait_for_url("**/nodes")
    expect(page.get_by_role("link", name=address)).to_have_count(0)
    assert cluster.admin.request("GET", f"{BASE}/nodes/{address}")[0] == 404
    last.start()
    cluster.wait_for_nodes("only_there", 1)


def test_an_open_page_finds_messages_of_another_node(page: Page, cluster: Cluster) -> None:
    cluster.nsqds[0].post("/pub?topic=moving", b"first")
    cluster.wait_for_nodes("moving", 1)
    page.goto(cluster.url("/messages/moving"))
    page.get_by_role("button", name="Follow").click()

    def is_seen() -> bool:
        cluster.nsqds[1].post("/pub?topic=moving", b"elsewhere")
        return page.get_by_role("gridcell", name="elsewhere").count() > 0

    eventually(is_seen)


def test_a_replay_of_one_node_keeps_the_previews_of_others(page: Page, cluster: Cluster) -> None:
    for nsqd in cluster.nsqds[:2]:
        nsqd.make("again", "all")
    cluster.wait_for_nodes("again", 2)
    page.goto(cluster.url("/topics/again/all"))
    page.get_by_label("2026-11-21 06:00 (UTC)").fill("2001-01-01")
    page.get_by_role("button", name="Preview").click()
    offers = page.get_by_role("button", name="Move it on")
    expect(offers).to_have_count(2)
    offers.first.click()
    page.get_by_label("Type all to confirm").fill("all")
    page.get_by_role("button", name="Go on").click()
    expect(offers).to_have_count(1)
