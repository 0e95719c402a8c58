"""The pages over an official installation: every one is whole, what our own nsqd has beside is said
to be missing, and the official actions work."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from penstock.nsqadmin.pages import bar

from ..official import Calls, Lookupd, Nsqd, channel, client
from ..running import Admin

VERSIONS = ("1.3.0", "1.0.0")
LATENCY = {"count": 3, "percentiles": [{"quantile": 0.99, "value": 2_000_000_000}]}


class Site(NamedTuple):
    nsqds: list[Nsqd]
    lookupd: Lookupd
    admin: Admin


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
    places = [path for path, _, _ in bar.SECTIONS if path not in own]
    for path in places + below:
        page.goto(site.admin.url(path))
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_function("window.did_handshake")
        expect(page.locator("body")).not_to_contain_text("NaN")
    assert "Traceback" not in site.admin.stderr()
