"""The scenarios, as a table. How many messages each takes is for 200-byte bodies."""

from dataclasses import dataclass
from enum import Enum

from bench.shape import PLAIN, Shape

PASS_BYTES_MAX = 400_000_000  # larger bodies get fewer messages, so that a pass stays as long
BATCH = 200
CREDIT = 2500  # RDY
LAG_MAX = 6_000
PARTITIONS = 8
KEYS, MANY_KEYS = 10_000, 100_000
QUICK_DIVISOR = 20


class Kind(Enum):
    PUBLISH = "publish"
    CONSUME = "consume a backlog"
    BOTH = "publish and consume"
    RESTART = "restart"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    kind: Kind
    messages: int
    batch: int = 1  # messages per publishing command
    window: int = 1  # commands without an answer yet, per connection
    connections: int = 1  # publishers
    channels: int = 0
    credit: int = CREDIT
    ack_each: bool = False  # every FIN in a packet of its own
    lag_max: int = 0
    rate: int = 0  # messages a second, 0: as fast as it goes
    batch_is_the_point: bool = False  # a protocol without batches has nothing to show here
    measures_size: bool = True  # run at every body size
    shape: Shape = PLAIN
    beside: str = ""  # the scenario whose cost it is to be compared with


def _publishing(name: str, about: str, shape: Shape, beside: str) -> Scenario:
    return Scenario(name, about, Kind.PUBLISH, 2_000_000, batch=BATCH, window=8,
                    batch_is_the_point=True, shape=shape, beside=beside)  # fmt: skip


def _consuming(name: str, about: str, shape: Shape, beside: str) -> Scenario:
    return Scenario(name, about, Kind.CONSUME, 2_000_000, channels=1, shape=shape, beside=beside)


SHAPED = (
    _publishing(
        "mpub-8p", f"MPUB of 200, {PARTITIONS} partitions", Shape(PARTITIONS), beside="mpub"
    ),
    _consuming(
        "consume-8p", f"a backlog in {PARTITIONS} partitions", Shape(PARTITIONS), beside="consume"
    ),
    _publishing(
        "mpub-keys",
        f"MPUB_EXT of 200, {KEYS:,} keys over {PARTITIONS} partitions",
        Shape(PARTITIONS, keys=KEYS),
        beside="mpub",
    ),
    _publishing("mpub-headers", "MPUB_EXT of 200 with headers", Shape(headers=True), beside="mpub"),
    _consuming("consume-keys", f"a backlog of {KEYS:,} keys", Shape(keys=KEYS), beside="consume"),
    _consuming(
        "key-order",
        f"the same with order=key, {KEYS:,} keys",
        Shape(keys=KEYS, order="key"),
        beside="consume-keys",
    ),
    _consuming(
        "key-order-100k",
        f"order=key, {MANY_KEYS:,} keys",
        Shape(keys=MANY_KEYS, order="key"),
        beside="consume-keys",
    ),
    _consuming("consume-headers", "a backlog with headers", Shape(headers=True), beside="consume"),
    _consuming(
        "consume-tag",
        "a backlog with a tag, a consumer that asks for it",
        Shape(tagged=True),
        beside="consume-headers",
    ),
)
SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "mpub",
        "MPUB of 200, eight outstanding",
        Kind.PUBLISH,
        2_000_000,
        batch=BATCH,
        window=8,
        batch_is_the_point=True,
    ),
    Scenario(
        "mpub64",
        "MPUB of 200, 64 outstanding: rows of 1,000 messages and more",
        Kind.PUBLISH,
        2_000_000,
        batch=BATCH,
        window=64,
        batch_is_the_point=True,
    ),
    Scenario("pub500", "pipelined PUB, window 500", Kind.PUBLISH, 1_000_000, window=500),
    Scenario("pub1", "one PUB per round trip, 1 connection", Kind.PUBLISH, 100_000),
    Scenario(
        "pub50", "one PUB per round trip, 50 connections", Kind.PUBLISH, 400_000, connections=50
    ),
    Scenario("consume", "a backlog, FINs in bulk", Kind.CONSUME, 2_000_000, channels=1),
    Scenario(
        "consume1fin",
        "a backlog, each FIN in a packet of its own",
        Kind.CONSUME,
        500_000,
        channels=1,
        ack_each=True,
    ),
    Scenario(
        "e2e",
        "MPUB and one consumer, lag at most 6,000",
        Kind.BOTH,
        2_000_000,
        batch=BATCH,
        window=8,
        channels=1,
        lag_max=LAG_MAX,
        batch_is_the_point=True,
    ),
    Scenario(
        "e2e64",
        "MPUB, 64 outstanding, and one consumer, lag at most 40,000",
        Kind.BOTH,
        2_000_000,
        batch=BATCH,
        window=64,
        channels=1,
        lag_max=40_000,
        batch_is_the_point=True,
    ),
    *(
        Scenario(
            f"fanout{channels}",
            f"{channels} channels, per delivery",
            Kind.BOTH,
            messages,
            batch=BATCH,
            window=8,
            channels=channels,
            lag_max=LAG_MAX,
        )
        for channels, messages in ((1, 1_000_000), (4, 500_000), (16, 150_000))
    ),
    *(
        Scenario(
            name,
            f"delivery at 2,000 messages/s, RDY {credit}",
            Kind.BOTH,
            10_000,
            window=500,
            channels=1,
            credit=credit,
            rate=2_000,
        )
        for name, credit in (("latency", CREDIT), ("latency-rdy1", 1))
    ),
    *SHAPED,
    Scenario("restart", "start after kill -9", Kind.RESTART, 0, batch=BATCH, window=8, channels=1),
    *(
        Scenario(
            name,
            "memory with a backlog",
            Kind.MEMORY,
            messages,
            batch=BATCH,
            window=8,
            channels=1,
            measures_size=False,
        )
        for name, messages in (("rss1m", 1_000_000), ("rss10m", 10_000_000))
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
UNBATCHED_WINDOW = 500  # what a protocol without batches gets in place of batch times window


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of a scenario to run."""

    body_bytes: int
    quick: bool
    restart_mb: int

    @property
    def seconds_max(self) -> float:
        """A slow daemon publishes fewer messages, not for ever."""
        return 2.0 if self.quick else 10.0

    def messages(self, scenario: Scenario) -> int:
        if scenario.kind is Kind.RESTART:
            return self._whole_batches(scenario, self.restart_mb * 1_000_000 // self.body_bytes)
        count = scenario.messages
        if scenario.kind is not Kind.MEMORY:
            count = min(count, PASS_BYTES_MAX // (self.body_bytes * max(1, scenario.channels)))
        return self._whole_batches(scenario, count // (QUICK_DIVISOR if self.quick else 1))

    def _whole_batches(self, scenario: Scenario, count: int) -> int:
        share = scenario.batch * scenario.connections
        return max(1, count // share) * share
