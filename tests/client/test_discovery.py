"""Answers of nsqlookupds in both forms, rounds over several, and a consumer that follows them."""

import json
from typing import Any

import pytest

from cases import each
from penstock.client import Consumer, Producer
from penstock.client.discovery import Discovery, addresses_in, topics_in
from penstock.client.options import ConsumerOptions
from penstock.errors import ConnectFailed

from .fake_lookupd import FakeLookupd
from .fake_nsqd import FakeNsqd
from .server import until

NODE = {"broadcast_address": "b", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}


@each(
    ("document", "addresses"),
    [
        ({"channels": [], "producers": [NODE]}, {"b:4150"}),
        ({"status_code": 200, "status_txt": "OK", "data": {"producers": [NODE]}}, {"b:4150"}),
        ({"producers": [{"address": "old", "tcp_port": 1}]}, {"old:1"}),
        ({"producers": [{"broadcast_address": "::1", "tcp_port": 1}]}, {"[::1]:1"}),
        ({"producers": [NODE, NODE, {**NODE, "tcp_port": 1}]}, {"b:4150", "b:1"}),
        ({"producers": [{}, None, 7, {"tcp_port": 1}, {**NODE, "tcp_port": "4150"}]}, set()),
        ({"producers": [{**NODE, "tcp_port": 0}, {**NODE, "tcp_port": 65536}]}, set()),
        ({"producers": [{**NODE, "broadcast_address": one} for one in ("/tmp/x", "a\nb")]}, set()),
        ({"producers": None}, set()),
        ({"status_code": 500, "data": None}, set()),
        ([], set()),
        (None, set()),
    ],
)
def test_answers(document: Any, addresses: set[str]) -> None:
    assert addresses_in(json.loads(json.dumps(document))) == addresses


@each("form", [dict, lambda **document: {"status_code": 200, "data": document}])
def test_topics_are_those_that_can_be(form: Any) -> None:
    assert topics_in(form(topics=["b", "../x", 7, None, "a", "c$", "\ud800"])) == ["a", "b"]
    assert not any(map(topics_in, (form(topics=None), form(), form(topics="ab"), [], "ab", None)))


async def test_answers_are_united_and_failures_named() -> None:
    async with FakeLookupd() as one, FakeLookupd() as two, FakeLookupd() as broken:
        one.nodes, two.nodes = ["a:1", "b:2"], ["b:2", "c:3"]
        two.old_form = True
        broken.status = 500
        discovery = Discovery([one.address, two.address], ConsumerOptions())
        found = await discovery.topic("t")
        assert found.addresses == {"a:1", "b:2", "c:3"}
        assert found.complete
        two.status = 404
        assert (await discovery.topic("t")).addresses == {"a:1", "b:2"}
        assert (await discovery.nodes()).complete
        await discovery.close()
        discovery = Discovery([one.address, broken.address], ConsumerOptions())
        found = await discovery.topic("a.b#ephemeral")
        assert (found.addresses, found.complete) == ({"a:1", "b:2"}, False)
        assert one.asked[-1] == "/lookup?topic=a.b%23ephemeral"
        await discovery.close()


async def has(consumer: Consumer, *addresses: str) -> None:
    await until(lambda: set(consumer.addresses) == set(addresses))


async def test_nodes_come_and_go() -> None:
    async with FakeLookupd() as lookupd, FakeNsqd() as first, FakeNsqd() as second:
        options: dict[str, Any] = {"lookup_interval_s": 0.02, "reconnect_delay_s": 0.01}
        async with Consumer("t", "c", lookupds=lookupd.address, **options) as consumer:
            await lookupd.rounds(1)
            assert consumer.addresses == []
            lookupd.nodes = [first.address, second.address]
            await has(consumer, first.address, second.address)
            lookupd.nodes = [second.address]
            await lookupd.rounds(2)
            assert len(consumer.addresses) == 2  # it stands as long as nsqd keeps it
            first.peers[0].hang_up()
            second.peers[0].hang_up()
            await has(consumer, second.address)
            await lookupd.rounds(2)
            assert len(first.peers) == 1
            assert len(second.peers) == 2
            lookupd.nodes = [first.address, second.address]
            await has(consumer, first.address, second.address)


async def test_a_lost_connection_is_looked_up_at_once_and_forgotten_later() -> None:
    async with FakeLookupd() as lookupd, FakeNsqd() as first, FakeNsqd() as second:
        lookupd.nodes = [first.address]
        async with Consumer("t", "c", lookupds=lookupd.address, lookup_jitter=0) as consumer:
            await has(consumer, first.address)
            lookupd.nodes = [second.address]
            first.peers[0].hang_up()
            await has(consumer, first.address, second.address)


async def test_a_failing_nsqlookupd_removes_no_node() -> None:
    async with FakeLookupd() as lookupd, FakeNsqd() as nsqd:
        lookupd.nodes = [nsqd.address]
        options: dict[str, Any] = {"lookup_interval_s": 0.02, "reconnect_delay_s": 0.01}
        async with Consumer("t", "c", lookupds=lookupd.address, **options) as consumer:
            await has(consumer, nsqd.address)
            lookupd.status = 500
            await lookupd.rounds(2)
            nsqd.peers[0].hang_up()
            await until(lambda: len(nsqd.peers) >= 2)
            await has(consumer, nsqd.address)


async def test_each_topic_is_looked_up() -> None:
    """By the same rounds."""
    async with FakeLookupd() as lookupd, FakeNsqd() as first, FakeNsqd() as second:
        lookupd.of_topic = {"a": [first.address], "b": [first.address, second.address]}
        options: dict[str, Any] = {"lookup_interval_s": 0.02, "reconnect_delay_s": 0.01}
        async with Consumer(["a", "b"], "c", lookupds=lookupd.address, **options) as consumer:
            await until(lambda: consumer.counts.connections == 3)
            assert sorted(consumer.addresses) == sorted([first.address, second.address])
            subs = [[peer.lines()[0] for peer in one.peers] for one in (first, second)]
            assert [sorted(subs[0]), subs[1]] == [[b"SUB a c", b"SUB b c"], [b"SUB b c"]]
            lookupd.of_topic = {"a": [first.address], "b": [second.address]}
            await lookupd.rounds(4)
            for peer in [*first.peers, *second.peers]:
                peer.hang_up()
            await lookupd.rounds(4)
            assert [peer.lines()[0] for peer in first.peers[2:]] == [b"SUB a c"]
            assert [peer.lines()[0] for peer in second.peers[1:]] == [b"SUB b c"]
        assert set(lookupd.asked) == {"/lookup?topic=a", "/lookup?topic=b"}


async def test_a_producer_finds_its_nsqd() -> None:
    async with FakeLookupd() as lookupd, FakeNsqd() as nsqd:
        with pytest.raises(ConnectFailed, match="no nsqd is known"):
            await Producer(lookupds=lookupd.address).start()
        lookupd.nodes = [nsqd.address]
        async with Producer(lookupds=lookupd.address) as producer:
            await producer.pub("t", b"body")
            assert producer.address == nsqd.address
        assert lookupd.asked[-1] == "/nodes"
