"""The pages over an official installation: every one is whole, what our own nsqd has beside is said
to be missing, and the official actions work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from penstock.nsqadmin.pages import layout

from ..official import Calls, Lookupd, Nsqd, channel, client
from ..running import Admin

VERSIONS = ("1.3.0", "1.0.0")
LATENCY = {"count": 3, "percentiles": [{"quantile": 0.99, "value": 2_000_000_000}]}
LACKS = "which is Penstock's own"


class Site(NamedTuple):
    nsqds: list[Nsqd]
    lookupd: Lookupd
    admin: Admin

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.admin.http_port}{path}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    calls = Calls()
    with ExitStack() as stack:
        nsqds = [stack.enter_context(Nsqd(f"host-{one}", calls, one)) for one in VERSIONS]
        lookupd = stack.enter_context(Lookupd("lookupd", calls, nsqds))
        path = tmp_path_factory.mktemp("official") / "admin"
        admin = stack.enter_context(Admin(path, f"-lookupd-http-address={lookupd.address}"))
        lookupd.made["idle"] = {"waiting"}
        for nsqd in nsqds:
            nsqd.put("orders", {"billing": _billing(), "mail": channel()}, depth=7, backend_depth=1,
                     message_count=11)  # fmt: skip
        nsqds[0].producers.append(
            client(client_id="shop", pub_counts=[{"topic": "orders", "count": 9}])
        )
        yield Site(nsqds, lookupd, admin)


def _billing() -> dict[str, object]:
    sparse = {"client_id": "old", "remote_address": "10.0.0.7:9", "hostname": "old.example"}
    secure = client(client_id="safe", remote_address="10.0.0.8:1", tls=True, tls_version="TLS1.3",
                    tls_cipher_suite="Unknown 4865", authed=True, auth_identity="ann",
                    snappy=True, sample_rate=20)  # fmt: skip
    return channel(
        depth=5, backend_depth=2, in_flight_count=1, deferred_count=3, message_count=10,
        requeue_count=4, timeout_count=6, clients=[client(), secure, sparse],
        e2e_processing_latency=LATENCY,
    )  # fmt: skip


def test_every_page_is_whole(page: Page, site: Site) -> None:
    """The fixture `page` fails for any error in the browser's console."""
    below = ["/topics/orders", "/topics/orders/billing", "/topics/idle", "/messages/orders",
             f"/nodes/{site.nsqds[1].address}", "/trace?id=0123456789abcdef"]  # fmt: skip
    own = ("/sql", "/audit", "/users", "/tokens")
    places = [path for path, _, _ in layout.PLACES if path not in own]
    for path in places + below:
        page.goto(site.url(path))
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_function("window.did_handshake")
        expect(page.locator("body")).not_to_contain_text("NaN")
    assert "Traceback" not in site.admin.stderr()


def test_what_is_not_known_is_not_nought(page: Page, site: Site) -> None:
    page.goto(site.url("/"))
    for name in ("Oldest", "Not synced", "Last sync", "Disk left"):
        expect(page.locator(".tile", has_text=name)).to_contain_text("unknown")
    for name, number in (("Depth", "24"), ("In flight", "2"), ("Nodes", "2 of 2")):
        expect(page.locator(".tile", has_text=name)).to_contain_text(number)
    page.goto(site.url("/topics/orders"))
    expect(page.locator(".tile", has_text="On disk")).to_contain_text("does not tell")
    page.goto(site.url(f"/nodes/{site.nsqds[0].address}"))
    for name in ("On disk", "Disk left", "Slowest sync"):
        expect(page.locator(".tile", has_text=name)).to_contain_text("unknown")


def test_what_it_cannot_do_is_said(page: Page, site: Site) -> None:
    page.goto(site.url("/messages/orders"))
    expect(page.get_by_text(LACKS)).to_be_visible()
    page.goto(site.url("/topics/orders/billing"))
    expect(page.get_by_text(LACKS)).to_be_visible()
    expect(page.get_by_text("has no such settings").first).to_be_visible()
    page.get_by_label("2026-11-21 06:00 (UTC)").fill("2026-11-21 06:00")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("it has no /channel/setoffset").first).to_be_visible()
    page.goto(site.url("/trace?id=0123456789abcdef"))
    expect(page.get_by_text(LACKS).first).to_be_visible()


def test_clients_of_all_releases_are_shown(page: Page, site: Site) -> None:
    page.goto(site.url("/topics/orders/billing"))
    clients = page.get_by_role("region", name="Clients").or_(
        page.locator("section", has_text="Clients")
    )
    for text in ("TLS1.3", "snappy", "20 % sampled", "authed ann", "old.example"):
        expect(clients.get_by_text(text).first).to_be_visible()
    expect(page.get_by_text("99 %: 2 s").first).to_be_visible()
    page.goto(site.url("/connections"))
    expect(page.get_by_text("7 connections")).to_be_visible()
    expect(page.get_by_role("gridcell", name="shop")).to_be_visible()


def test_official_actions_are_done(page: Page, site: Site) -> None:
    kept = [nsqd.topics["orders"]["channels"] for nsqd in site.nsqds]
    page.goto(site.url("/topics/orders/mail"))
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".badge", has_text="paused")).to_be_visible()
    assert [one["mail"]["paused"] for one in kept] == [True, True]
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type mail to confirm").fill("mail")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    assert [list(one) for one in kept] == [["billing"]] * 2
    page.goto(site.url("/lookup"))
    expect(page.locator(".heading", has_text="idle")).to_contain_text("waiting")


def test_an_old_release_is_marked(page: Page, site: Site) -> None:
    page.goto(site.url("/nodes"))
    expect(page.get_by_text("1.0.0 (out of date)")).to_be_visible()
