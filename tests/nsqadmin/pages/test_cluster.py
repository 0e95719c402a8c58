"""Three nsqds and two nsqlookupds: sums, nodes that die and return, topics that some do not have,
tombstones, a channel whose consumers are everywhere; and every page under a base path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually
from penstock.nsqadmin.pages import layout

from ..running import Admin

BASE = "/tools/nsq"
EACH = 4  # consumers of each node


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
        told = [f"-lookupd-tcp-address=127.0.0.1:{one.tcp_port}" for one in lookupds]
        asked = [f"-lookupd-http-address=127.0.0.1:{one.http_port}" for one in lookupds]
        nsqds = [
            stack.enter_context(Daemon(path / f"nsqd_{one}", *told, "-broadcast-address=127.0.0.1"))
            for one in range(3)
        ]
        admin = stack.enter_context(Admin(path / "admin", *asked, f"-base-path={BASE}"))
        yield Cluster(lookupds, nsqds, admin)


def test_sums_over_all_nodes_and_clients_of_each(page: Page, cluster: Cluster) -> None:
    with ExitStack() as stack:
        for number, nsqd in enumerate(cluster.nsqds):
            nsqd.post("/topic/create?topic=wide")
            nsqd.post("/channel/create?topic=wide&channel=all")
            for _ in range(number + 1):
                nsqd.post("/pub?topic=wide", b"x")
            for one in range(EACH):
                client = stack.enter_context(nsqd.client())
                client.identify(client_id=f"c{number}-{one}", hostname=f"host-{number}-{one}")
                client.sub("wide", "all")
        cluster.wait_for_nodes("wide", 3)
        page.goto(cluster.url("/topics/wide"))
        expect(page.locator(".tile", has_text="Depth")).to_contain_text("6")
        for number in range(3):
            row = page.get_by_role("row").filter(has_text=cluster.address(number))
            expect(row.locator("[col-id=messages]")).to_have_text(str(number + 1))
        page.get_by_role("link", name="all", exact=True).click()
        expect(page.locator("h1")).to_have_text("all")
        for number in range(3):
            expect(page.get_by_text(f"host-{number}-{EACH - 1} (").first).to_be_attached()
        shown = cluster.admin.json("GET", f"{BASE}/api/topics/wide/all")
        assert (shown["depth"], shown["client_count"]) == (6, 3 * EACH)
        assert len(shown["clients"]) == 3 * EACH


def test_definitions_are_put_on_the_nodes_that_are_chosen(page: Page, cluster: Cluster) -> None:
    text = '{"version":1,"topics":[{"name":"placed","channels":[{"name":"c"}]}]}'
    page.goto(cluster.url("/lookup"))
    page.get_by_label("Definitions to put in").fill(text)
    chosen = page.get_by_label("On nodes")
    chosen.click()
    for number in range(3):  # all are chosen at first: take them away
        page.get_by_role("option", name=cluster.address(number)).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Put in").click()
    expect(page.get_by_text("Choose a node that answers.")).to_be_visible()
    chosen.click()
    page.get_by_role("option", name=cluster.address(1)).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_text(f"create topic placed on {cluster.address(1)}")).to_be_visible()
    page.get_by_role("button", name="Put in").click()
    expect(page.get_by_text("(1 new) on 1 node:")).to_be_visible()
    page.get_by_label("Type definitions to confirm").fill("definitions")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("Done.")).to_be_visible()
    there = [one.http("GET", "/stats?format=json&topic=placed")[1] for one in cluster.nsqds]
    assert [b"placed" in one for one in there] == [False, True, False]
    page.goto(cluster.url("/audit?action=put_definitions"))
    expect(page.get_by_role("gridcell", name=f"placed on {cluster.address(1)}")).to_be_visible()


def test_a_topic_of_one_node_and_its_tombstone(page: Page, cluster: Cluster) -> None:
    for number in (0, 1):
        cluster.nsqds[number].post("/topic/create?topic=narrow")
    cluster.wait_for_nodes("narrow", 2)
    page.goto(cluster.url("/topics/narrow"))
    panel = page.locator("section.panel").filter(has=page.get_by_role("heading", name="Nodes"))
    for number, count in ((0, 1), (1, 1), (2, 0)):
        expect(panel.get_by_role("link", name=cluster.address(number))).to_have_count(count)
    page.goto(cluster.url(f"/nodes/{cluster.address(1)}"))
    page.get_by_label("Topic", exact=True).fill("narrow")
    page.get_by_role("button", name="Delete there").click()
    page.get_by_label("Type narrow to confirm").fill("narrow")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("Done.")).to_be_visible()
    page.goto(cluster.url("/topics/narrow"))
    expect(panel.get_by_role("link", name=cluster.address(0))).to_have_count(1)
    expect(panel.get_by_role("link", name=cluster.address(1))).to_have_count(0)


def test_a_node_that_dies_and_returns(page: Page, cluster: Cluster) -> None:
    dying = cluster.nsqds[2]
    for nsqd in cluster.nsqds:
        nsqd.post("/pub?topic=steady", b"x")
    cluster.wait_for_nodes("steady", 3)
    page.goto(cluster.url("/"))
    expect(page.locator(".tile", has_text="Nodes")).to_contain_text("3 of 3")
    dying.kill()
    # nsqlookupd forgets it as soon as its connection ends; nsqadmin shows what is known by then.
    expect(page.locator(".tile", has_text="Nodes")).not_to_contain_text("3 of 3")
    page.goto(cluster.url("/topics/steady"))
    tile = page.locator(".tile").filter(has=page.get_by_text("Depth", exact=True))
    expect(tile.locator(".number")).to_have_text("2")
    dying.start()
    cluster.wait_for_nodes("steady", 3)
    expect(tile.locator(".number")).to_have_text("3")
    page.goto(cluster.url("/nodes"))
    expect(page.get_by_text("up", exact=True).first).to_be_visible()


def test_one_nsqlookupd_less_is_a_warning(page: Page, cluster: Cluster) -> None:
    dying = cluster.lookupds[1]
    page.goto(cluster.url("/topics"))
    expect(page.get_by_role("link", name="steady")).to_be_visible()
    dying.kill()
    expect(page.locator(".banner")).to_contain_text("WARNING")
    expect(page.get_by_role("link", name="steady")).to_be_visible()
    dying.start()
    expect(page.locator(".banner")).to_be_hidden()


def test_every_page_lives_below_the_base_path(page: Page, cluster: Cluster) -> None:
    paths = [path for path, _, _ in layout.PLACES]
    paths += ["/topics/wide", "/topics/wide/all", "/messages/wide", f"/nodes/{cluster.address(0)}"]
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
    assert cluster.admin.request("GET", f"{BASE}/")[0] == 301
    assert cluster.admin.request("GET", "/topics")[0] == 404
