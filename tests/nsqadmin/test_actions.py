"""What an action does when some of those that it concerns can't be asked."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from cases import each
from penstock import limits
from penstock.errors import FetchFailed, NotFound, PenstockError
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.actions import Actions, NotDeleted, OfCluster, Operation
from penstock.nsqadmin.api import error_response
from penstock.nsqadmin.pages.layout import why
from penstock.nsqadmin.upstream import (
    NSQD,
    Asked,
    DaemonRefused,
    NotOffered,
    Upstream,
    UpstreamFailed,
)

from .official import Calls, Lookupd, Nsqd, channel


class Site(NamedTuple):
    calls: Calls
    nsqds: list[Nsqd]
    lookupd: Lookupd

    def act(self, chosen: Callable[[Actions], Operation]) -> str:
        async def go() -> str:
            fetcher = Fetcher(request_timeout_ns=2 * limits.SECOND)
            try:
                return await chosen(Actions(Upstream(fetcher, (self.lookupd.address,), ()))).run()
            finally:
                await fetcher.close()

        return asyncio.run(go())


@pytest.fixture
def site() -> Iterator[Site]:
    calls = Calls()
    with ExitStack() as stack:
        nsqds = [stack.enter_context(Nsqd(f"nsqd{one}", calls)) for one in range(2)]
        for nsqd in nsqds:
            nsqd.put("orders", {"mail": channel()})
        lookupd = stack.enter_context(Lookupd("lookupd", calls, nsqds))
        lookupd.made["idle"] = set()
        yield Site(calls, nsqds, lookupd)


@pytest.mark.parametrize("part", ["", "mail"])
def test_nothing_is_deleted_when_no_nsqd_can_be_asked(site: Site, part: str) -> None:
    for nsqd in site.nsqds:
        nsqd.fails = 502
    with pytest.raises(UpstreamFailed) as failed:
        site.act(lambda actions: actions.delete("orders", part))
    assert list(failed.value.failed) == [one.address for one in site.nsqds]
    assert site.calls.posts() == []


def test_a_registration_stays_when_one_nsqd_cannot_be_asked(site: Site) -> None:
    site.nsqds[1].fails = 502
    text = site.act(lambda actions: actions.delete("orders"))
    assert f"deleted on 1 of 2: {site.nsqds[1].address}: it failed, and its log" in text
    posts = [at for who, at in site.calls.posts() if who == "lookupd"]
    assert posts == [
        f"/topic/tombstone?topic=orders&node={site.nsqds[0].address.replace(':', '%3A')}"
    ]
    assert list(site.nsqds[0].topics) == []
    assert list(site.nsqds[1].topics) == ["orders"]


def test_an_nsqlookupd_of_a_cluster_passes_on_what_it_is_asked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(query: dict[str, str]) -> None:
        for nsqd in site.nsqds:
            del nsqd.topics[query["topic"]]

    monkeypatch.setattr(site.lookupd, "_delete", delete)
    assert site.act(lambda actions: actions.delete("orders")) == ""  # the nsqds say 404
    site.act(lambda actions: actions.create("fresh", partitions=4, replicas=2))
    shaped = ("lookupd", "/topic/create?topic=fresh&partition_num=4&replicator=2")
    assert shaped in site.calls.posts()


def test_a_topic_that_every_nsqd_refuses_is_not_registered(site: Site) -> None:
    for nsqd in site.nsqds:
        nsqd.fails = 400
    with pytest.raises(UpstreamFailed):
        site.act(lambda actions: actions.create("fresh", replicas=3))
    assert [path for who, path in site.calls.posts() if who == "lookupd"] == []


def test_an_nsqd_that_says_it_is_not_healthy_is_there(site: Site) -> None:
    """A full disk, which deleting helps."""
    for nsqd in site.nsqds:
        nsqd.health = "NOK - the disk is full"
    assert site.act(lambda actions: actions.delete("orders")) == ""
    assert [list(one.topics) for one in site.nsqds] == [[], []]


def test_a_tombstone_is_set_only_where_the_node_can_be_asked(site: Site) -> None:
    site.nsqds[1].fails = 502
    with pytest.raises(UpstreamFailed):
        site.act(lambda actions: actions.tombstone(site.nsqds[1].address, "orders"))
    assert site.calls.posts() == []


def test_no_topic_is_taken_off_one_node_of_a_cluster(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be deleted on all."""
    node = site.nsqds[0]
    routes = {**node.routes(), ("GET", "/cluster"): lambda query: {"node": 1}}
    monkeypatch.setattr(node, "routes", lambda: routes)
    with pytest.raises(OfCluster, match="which would delete orders everywhere") as refused:
        site.act(lambda actions: actions.tombstone(node.address, "orders"))
    assert site.calls.posts() == []
    assert error_response(refused.value).status_code == 409
    node.put("own#ephemeral")
    assert site.act(lambda actions: actions.tombstone(node.address, "own#ephemeral")) == ""


def test_only_topics_without_an_nsqd_are_forgotten(site: Site) -> None:
    with pytest.raises(NotDeleted, match=r"has registered orders"):
        site.act(lambda actions: actions.forget("orders"))
    assert site.act(lambda actions: actions.forget("idle")) == ""
    assert site.calls.posts() == [("lookupd", "/topic/delete?topic=idle")]


def test_nothing_is_forgotten_while_an_nsqlookupd_is_silent(site: Site) -> None:
    """It may know an nsqd that has the topic."""

    def forget(actions: Actions) -> Operation:
        actions._upstream.lookupds = (site.lookupd.address, "127.0.0.1:1")
        return actions.forget("idle")

    with pytest.raises(NotDeleted, match=r"127\.0\.0\.1:1"):
        site.act(forget)
    assert site.calls.posts() == []


@each(
    ("error", "text"),
    [
        (DaemonRefused("n", "got response 413", 413, "MSG_TOO_BIG"),
         "the message is larger than its -max-msg-size (413 MSG_TOO_BIG)"),
        (DaemonRefused("n", "got response 409", 409, "OFFSET_GONE", "it begins at 7"), "it begins"),
        (DaemonRefused("n", "got response 503", 503, "the disk is full"), "the disk is full"),
        (NotOffered("n", "/message/get"), "n cannot do this: it has no /message/get"),
        (FetchFailed("n", "timed out"), "timed out"),
        (NotFound("topic", "orders"), "no such topic: orders"),
        (UpstreamFailed(NSQD, {"n": FetchFailed("n", "no", sent=False)}), "Nothing was"),
        (UpstreamFailed(NSQD, {}), "Nothing was done: no nsqd that answers has it"),
        (UpstreamFailed(NSQD, {"n": FetchFailed("n", "timed out")}),
         "It is not known whether it was done: n: timed out"),
    ],
)  # fmt: skip
def test_texts_of_outcomes(error: PenstockError, text: str) -> None:
    assert why(error).startswith(text)


def test_a_daemon_without_an_answer_is_named() -> None:
    failed = {"n": FetchFailed("http://n/stats", "timed out"), "m": FetchFailed("m", "500", 500)}
    assert Asked({}, failed).warning == "WARNING: http://n/stats: timed out\n500"
    assert str(UpstreamFailed(NSQD, failed)).endswith("nsqd: http://n/stats: timed out\n500")
