"""An idempotent producer whose nsqds refuse, fall silent and cut connections."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.client import (
    ClientClosed,
    ConnectFailed,
    IdempotentProducer,
    ProducerFull,
    ProducerStopped,
    PublishFenced,
    PublishGap,
    PublishRefused,
    PublishTimeout,
    PublishUncertain,
)
from penstock.errors import ConfigError, NameInvalid
from penstock.kernel import id_at
from penstock.wire.frames import encode_bodies
from penstock.wire.trace_ids import split_many

from .fake_lookupd import FakeLookupd
from .server import Server, until


class Asked(NamedTuple):
    path: str
    parameters: dict[str, str]
    body: bytes

    @property
    def stamp(self) -> tuple[int, int]:
        """Epoch and sequence."""
        return int(self.parameters["producer_epoch"]), int(self.parameters["sequence"])


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b"OK"
    headers: bytes = b""


OK = Reply()
REPEATED = Reply(headers=b"X-Penstock-Repeated: true\r\n")
DRAINING = Reply(503, b'{"message":"FAILED draining","taken":false}')
FAILED = Reply(503, b'{"message":"FAILED /data: fsync"}')
KNOWN = Reply(body=b'{"topics":{}}')
SILENCE = None  # for ever
CUT = Reply(0)

Replies = Callable[[Asked], Reply | None]


class FakeWeb(Server):
    """`publishes` are those that came, in order. Whether it is Penstock: `known`."""

    def __init__(
        self, reply: Replies = lambda _: OK, known: Reply = KNOWN, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(tls)
        self.reply = reply
        self.known = known
        self.publishes: list[Asked] = []
        self.questions = 0

    @classmethod
    def scripted(cls, *replies: Reply | None) -> Self:
        """The given ones, then OK."""
        left = list(replies)
        return cls(lambda _: left.pop(0) if left else OK)

    @property
    def stamps(self) -> list[tuple[int, int]]:
        return [asked.stamp for asked in self.publishes]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            reply = await self._answer(await self._read(reader))
            if reply is CUT:
                return
            head = f"HTTP/1.1 {reply.status} X\r\nContent-Length: {len(reply.body)}\r\n"
            writer.write(head.encode() + reply.headers + b"\r\n" + reply.body)

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = urlsplit(head.split(" ")[1])
        size = 0
        for line in head.split("\r\n"):
            name, _, value = line.partition(":")
            size = int(value) if name.lower() == "content-length" else size
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        return Asked(target.path, parameters, await reader.readexactly(size))

    async def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/log/positions":
            self.questions += 1
            return self.known
        self.publishes.append(asked)
        reply = self.reply(asked)
        if reply is None:
            await asyncio.get_running_loop().create_future()
            raise RuntimeError("silence ends by being cancelled only")
        return reply


FAST: dict[str, Any] = {"retry_delay_s": 0.001, "retry_delay_max_s": 0.01}
GAP = Reply(409, b'{"message":"SEQUENCE_GAP","expected":0}')
FENCED = Reply(409, b'{"message":"PRODUCER_FENCED","epoch":9}')
TOO_BIG = Reply(413, b'{"message":"BODY_TOO_BIG"}')


async def test_concurrent_publishes_share_a_batch_in_order() -> None:
    async with FakeWeb() as web, IdempotentProducer(web.address, batch_count_max=3) as producer:
        one = [producer.pub("t", b"%d" % n) for n in range(4)]
        two = producer.dpub("t", b"later", 2)
        other = producer.pub("u", b"of another topic")
        await asyncio.gather(*one, two, other)
        await producer.pub("t", b"last")
        mine = [asked for asked in web.publishes if asked.parameters["topic"] == "t"]
        assert [asked.path for asked in mine] == ["/mpub", "/pub", "/pub", "/pub"]
        assert [asked.stamp for asked in mine] == [(0, 0), (0, 3), (0, 4), (0, 5)]
        assert mine[0].body == encode_bodies([b"0", b"1", b"2"])
        assert mine[0].parameters["binary"] == "true"
        assert mine[2].parameters["defer"] == "2000"
        assert {asked.parameters["producer_id"] for asked in web.publishes} == {
            str(producer.producer_id)
        }
        assert producer.counts.stored == 7


@pytest.mark.parametrize("lost", [CUT, FAILED, Reply(500, b"?"), Reply(200, b"a portal's page")])
async def test_a_retry_has_the_same_numbers_and_messages(lost: Reply) -> None:
    async with FakeWeb.scripted(OK, lost, lost, REPEATED) as web:
        async with IdempotentProducer(web.address, **FAST) as producer:
            await producer.pub("t", b"0")
            first = producer.pub("t", b"1")
            await until(lambda: len(web.publishes) >= 2)
            await asyncio.gather(first, producer.pub("t", b"2"))
        assert web.stamps == [(0, 0), (0, 1), (0, 1), (0, 1), (0, 2)]
        assert [asked.body for asked in web.publishes] == [b"0", b"1", b"1", b"1", b"2"]
        assert producer.counts.repeated == 1


def traced(offset: int, id: int) -> Reply:
    body = b'{"status":"OK","id":%d,"trace_id":"7","queue_offset":%d,"rawsize":5}' % (id, offset)
    return Reply(body=body)


async def test_a_traced_publish_returns_its_position() -> None:
    base_id = 0x18D06CF4F3001000
    script = (traced(40, base_id), traced(50, base_id), OK)
    async with FakeWeb.scripted(*script) as web, IdempotentProducer(web.address) as producer:
        one = await producer.pub("t", b"alone", trace_id=7)
        assert one == (f"{base_id:016x}", 40, 7)
        together = await asyncio.gather(
            producer.pub("t", b"plain"),
            producer.pub("t", b"a", trace_id=8),
            producer.mpub("t", [b"b", b"c"], trace_id=[9, 0]),
        )
        assert together == [
            None,
            (f"{id_at(base_id, 1):016x}", 51, 8),
            (f"{id_at(base_id, 2):016x}", 52, 9),
        ]
        await producer.pub("t", b"plain again")
        assert [asked.path for asked in web.publishes] == ["/pubtrace", "/mpubtrace", "/pub"]
        assert web.publishes[0].parameters["trace_id"] == "7"
        assert split_many(web.publishes[1].body, 100) == [
            (0, b"plain"),
            (8, b"a"),
            (9, b"b"),
            (0, b"c"),
        ]
        assert web.stamps == [(0, 0), (0, 1), (0, 5)]


async def test_a_repeated_traced_publish_returns_no_position() -> None:
    again = REPEATED._replace(body=b'{"status":"OK","trace_id":"7"}')
    async with (
        FakeWeb.scripted(CUT, OK, again) as web,  # a plain OK is no answer to it
        IdempotentProducer(web.address, **FAST) as producer,
    ):
        assert await producer.pub("t", b"a", trace_id=7) is None
        assert web.stamps == [(0, 0)] * 3
        with pytest.raises(ConfigError, match="one for 2 bodies"):
            producer.mpub("t", [b"a", b"b"], trace_id=[1])


async def test_requests_at_a_time_are_bounded() -> None:
    async with FakeWeb(lambda _: SILENCE) as web:
        options = {"requests_max": 2, "stop_timeout_s": 0}
        async with IdempotentProducer(web.address, **options) as producer:
            futures = [producer.pub(f"t{n}", b"x") for n in range(5)]
            await until(lambda: len(web.publishes) >= 2)
            await asyncio.sleep(0.05)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert len(web.publishes) == 2
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [PublishUncertain] * 2 + [ClientClosed] * 3


async def test_an_unanswered_publish_is_repeated_and_ends_unknown() -> None:
    async with FakeWeb(lambda _: SILENCE) as web:
        options = FAST | {"request_timeout_s": 0.2, "publish_timeout_s": 1.5}
        async with IdempotentProducer(web.address, **options) as producer:
            head = producer.pub("t", b"head")
            await until(lambda: web.publishes)
            behind = producer.pub("t", b"behind")
            with pytest.raises(PublishUncertain) as uncertain:
                await head
            assert uncertain.value.topic == "t"
            await asyncio.wait([behind])  # so the head was given up: no late OK ends its doubt
            web.reply = lambda _: OK
            await producer.pub("t", b"next")
            assert {asked.body for asked in web.publishes} >= {b"head", b"next"}
            assert len(set(web.stamps)) == len({asked.body for asked in web.publishes})
            assert web.stamps[0] == (0, 0)
            fresh = [asked.stamp for asked in web.publishes if asked.body == b"next"]
            assert min(fresh)[0] > 0  # an epoch of their own


async def test_publishes_behind_an_unknown_outcome_were_not_sent() -> None:
    async with FakeWeb(lambda _: SILENCE) as web:
        async with IdempotentProducer(
            web.address, publish_timeout_s=1.0, stop_timeout_s=0, **FAST
        ) as producer:
            head = producer.pub("t", b"head")
            await until(lambda: web.publishes)
            behind = producer.pub("t", b"behind")
            behind.cancel()
            with pytest.raises(PublishUncertain):
                await head
            last = producer.pub("t", b"last")
            await until(lambda: len(web.publishes) >= 2)
            late = producer.pub("t", b"never sent")
        with pytest.raises(PublishUncertain):
            await last
        with pytest.raises(ClientClosed):
            await late
        assert [asked.body for asked in web.publishes] == [b"head", b"last"]
        assert producer.pending_count == producer.pending_bytes == 0


async def test_a_given_epoch_stops_after_an_unknown_outcome() -> None:
    async with FakeWeb.scripted(CUT, Reply(400, b'{"message":"NO"}')) as web:
        async with IdempotentProducer(web.address, producer_id=5, **FAST) as producer:
            with pytest.raises(PublishUncertain) as raised:
                await producer.pub("t", b"1")
            assert isinstance(raised.value.__cause__, PublishRefused)
            with pytest.raises(ProducerStopped) as stopped:
                await producer.pub("t", b"2")
            assert stopped.value.topic == "t"
            await producer.pub("u", b"another topic is not corrupt")
        assert [asked.body for asked in web.publishes if asked.stamp == (0, 0)][:2] == [b"1"] * 2
        assert len(web.publishes) == 3


async def test_a_refusal_does_not_end_the_producer() -> None:
    refusals = [Reply(400, b'{"message":"NO"}'), Reply(404, b"not JSON"), GAP, GAP, OK]
    async with FakeWeb.scripted(*refusals) as web:
        async with IdempotentProducer(web.address, **FAST) as producer:
            for status, code in ((400, "NO"), (404, "")):
                with pytest.raises(PublishRefused) as raised:
                    await producer.pub("t", b"x")
                assert (raised.value.status, raised.value.code) == (status, code)
            for _ in range(2):
                with pytest.raises(PublishGap):
                    await producer.pub("t", b"x")
            await producer.pub("t", b"x")
        assert web.stamps == [(0, 0), (0, 0), (0, 0), (1, 0), (2, 0)]


async def test_a_gap_settles_an_unknown_outcome() -> None:
    """nsqd's log ends before our numbers, so the publish in doubt is not there."""
    web = FakeWeb.scripted(OK, CUT, GAP)
    async with web, IdempotentProducer(web.address, **FAST) as producer:
        await producer.pub("t", b"1")
        with pytest.raises(PublishGap) as raised:
            await producer.pub("t", b"2")
        assert (raised.value.expected, raised.value.sequence) == (0, 1)


@pytest.mark.parametrize("script", [[FENCED], [CUT, FENCED]])
async def test_a_fenced_producer_sends_nothing_more(script: list[Reply]) -> None:
    epochs = iter([3])
    async with (
        FakeWeb.scripted(*script) as web,
        IdempotentProducer(
            web.address, producer_id=5, producer_epoch=lambda: next(epochs), **FAST
        ) as producer,
    ):
        with pytest.raises(PublishFenced if len(script) == 1 else PublishUncertain):
            await producer.pub("t", b"1")
        with pytest.raises(PublishFenced) as raised:
            await producer.pub("t", b"2")
        assert raised.value.epoch == 9
        assert web.stamps == [(3, 0)] * len(script)


async def test_a_reused_id_and_epoch_lose_nothing_silently() -> None:
    """nsqd takes the first publish for a repeat of that of another producer."""
    async with FakeWeb.scripted(REPEATED) as web, IdempotentProducer(web.address) as producer:
        with pytest.raises(PublishRefused) as raised:
            await producer.pub("t", b"1")
        assert (raised.value.status, raised.value.code) == (200, "REPEATED")


async def test_too_large_together_is_tried_one_by_one() -> None:
    def reply(asked: Asked) -> Reply:
        return TOO_BIG if asked.path == "/mpub" or asked.body == b"big" else OK

    async with FakeWeb(reply) as web, IdempotentProducer(web.address, **FAST) as producer:
        futures = [producer.pub("t", body) for body in (b"a", b"big", b"b")]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            type(None), PublishRefused, type(None)
        ]  # fmt: skip
        assert web.stamps == [(0, 0), (0, 0), (0, 1), (0, 1)]


# --- several nsqds ---


async def test_the_producer_changes_nodes_only_without_unknown_outcomes() -> None:
    first, second = FakeWeb.scripted(OK, CUT, CUT, OK, DRAINING), FakeWeb()
    async with first, second:
        addresses = [first.address, f"http://{second.address}/"]
        async with IdempotentProducer(addresses, **FAST) as producer:
            for body in (b"0", b"in doubt", b"moves", b"stays"):
                await producer.pub("t", body)
        assert [asked.body for asked in first.publishes] == [
            b"0", b"in doubt", b"in doubt", b"in doubt", b"moves"
        ]  # fmt: skip
        assert [asked.body for asked in second.publishes] == [b"moves", b"stays"]
        assert second.stamps == [(0, 0), (0, 1)]


async def test_another_node_of_a_cluster_settles_an_unknown_outcome() -> None:
    """They know the producer's numbers together; a node by itself knows none of them."""
    known = Reply(body=b'{"topics":{},"cluster":{"name":"one","uuid":"7"}}')
    first, other, alone = FakeWeb.scripted(OK, CUT, DRAINING), FakeWeb.scripted(REPEATED), FakeWeb()
    first.known = other.known = known
    async with first, alone, other:
        addresses = [first.address, alone.address, other.address]
        async with IdempotentProducer(addresses, **FAST) as producer:
            await producer.pub("t", b"0")
            await producer.pub("t", b"in doubt")
            await producer.pub("t", b"next")
        assert first.stamps == [(0, 0), (0, 1)]
        assert other.stamps == [(0, 1), (0, 2)]
        assert alone.publishes == []


async def test_an_unknown_outcome_stays_unknown_after_a_refusal() -> None:
    first, second = FakeWeb(lambda _: CUT), FakeWeb()
    async with first, second:
        options = FAST | {"publish_timeout_s": 1.0}
        addresses = [first.address, second.address]
        async with IdempotentProducer(addresses, **options) as producer:
            task = producer.pub("t", b"in doubt")
            await until(lambda: len(first.publishes) >= 2)
            first.reply = lambda _: DRAINING
            with pytest.raises(PublishUncertain):
                await task
            await producer.pub("t", b"next")
        assert [asked.body for asked in second.publishes] == [b"next"]


async def test_only_penstock_is_published_to() -> None:
    other = FakeWeb(known=Reply(404, b'{"message":"NOT_FOUND"}'))
    async with other, FakeWeb() as ours:
        with pytest.raises(ConnectFailed, match="not Penstock"):
            await IdempotentProducer(other.address).start()
        async with IdempotentProducer([other.address, ours.address], **FAST) as producer:
            await producer.pub("t", b"x")
        assert (len(other.publishes), len(ours.publishes)) == (0, 1)


async def test_lookupds_name_the_http_side() -> None:
    async with FakeWeb() as web, FakeLookupd() as lookupd:
        lookupd.nodes = [web.address]
        with pytest.raises(ConnectFailed, match="no nsqd is known"):
            await IdempotentProducer(lookupds=lookupd.address).start()  # a TCP side only
        lookupd.port_key = "http_port"
        async with IdempotentProducer(lookupds=lookupd.address, **FAST) as producer:
            await producer.pub("t", b"x")
        assert len(web.publishes) == 1


# --- what the caller got wrong ---


async def test_wrong_use_fails_at_once() -> None:
    for arguments in (
        {"addresses": ""},
        {"addresses": "a/b"},
        {"addresses": "ftp://a:1"},
        {"addresses": ()},
        {"addresses": "a:1", "producer_epoch": 1},
        {"addresses": "a:1", "producer_id": 0},
        {"addresses": "a:1", "producer_id": 1, "producer_epoch": 65536},
        {"addresses": "a:1", "snappy": True},
    ):
        with pytest.raises(ConfigError):
            IdempotentProducer(**arguments)  # type: ignore[arg-type]
    async with FakeWeb(lambda _: SILENCE) as web:
        options = {"pending_count_max": 1, "stop_timeout_s": 0}
        producer = IdempotentProducer(web.address, **options)
        with pytest.raises(ClientClosed):
            producer.pub("t", b"x")
        async with producer:
            for wrong in (lambda: producer.pub("t", b""), lambda: producer.mpub("t", [])):
                with pytest.raises(ConfigError):
                    wrong()
            with pytest.raises(NameInvalid):
                producer.pub("t$", b"x")
            with pytest.raises(ConfigError):
                producer.dpub("t", b"x", -1)
            one = producer.publish_nowait("t", b"x")
            with pytest.raises(ProducerFull):
                producer.publish_nowait("t", b"x")
        with pytest.raises((ClientClosed, PublishUncertain)):
            await one
        with pytest.raises(ClientClosed):
            producer.pub("t", b"x")
        with pytest.raises(ClientClosed):
            await producer.start()


async def test_no_server() -> None:
    async with FakeWeb() as web:
        address = web.address
    with pytest.raises(ConnectFailed):
        await IdempotentProducer(address).start()
    options = FAST | {"connect_required": False, "publish_timeout_s": 0.5}
    async with IdempotentProducer(address, **options) as producer:
        with pytest.raises(PublishTimeout) as raised:
            await producer.pub("t", b"x")
        assert not raised.value.sent
        assert isinstance(raised.value.__cause__, ConnectFailed)
