"""The plan of a replay: which messages, in which versions. It is made once and then kept.

A replay is written in versions (chunks), each committed by nsqd in one step under the replay's name
and the version's number. Exactly once follows from two facts: nsqd does a version once, and a
version means the same messages whenever it is tried. The second is why the plan is a file: tables
grow and retention deletes, so a plan made again would cut other versions.

A chunk is made of whole buckets: spans of offsets, as wide as a chunk may have messages. Only
buckets that hold a wanted message are in the plan, so a replay of ten messages out of a billion has
one small chunk. Offsets rise through the chunks of a partition, which keeps its order. Tasks that
write a chunk together divide it by `cuts_of`; nsqd puts what they staged together in that order.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.errors import ConfigError
from penstock.spark.delta_files import write_durably

_VERSION = 2  # 2: of a target with several partitions, or of one partition of the source
_ALL = -1


class Bucket(NamedTuple):
    """Wanted messages of one span of offsets: the first, the one behind the last, how many."""

    topic: str
    partition: int
    start: int
    end: int
    messages: int


class ReplayRequest(msgspec.Struct, frozen=True):
    """The parameters of a replay: a plan is good for the same request only."""

    source: str  # "table PATH" or "topics"
    topics: tuple[str, ...]
    to: str
    since: str
    until: str
    from_offset: int
    to_offset: int
    ids: tuple[str, ...]
    where: str
    timestamps: str
    broker: str = ""
    partition: int = _ALL


class Plan(msgspec.Struct, frozen=True):
    request: ReplayRequest
    logs: dict[str, str]  # the identity of the source: of each topic, or of the table
    target: str  # the identity of the target topic; "" when it was not there
    chunks: tuple[tuple[Bucket, ...], ...]
    partitions: int = 1  # of the target
    made_ns: int = 0  # when; a time of the request such as 24h counts from then
    version: Annotated[int, msgspec.Meta(ge=1, le=_VERSION)] = _VERSION

    @property
    def messages(self) -> int:
        return sum(bucket.messages for chunk in self.chunks for bucket in chunk)

    def done_by(self, version: int | None) -> int:
        chunks = self.chunks[: 0 if version is None else version + 1]
        return sum(bucket.messages for chunk in chunks for bucket in chunk)

    def logs_by(self, version: int) -> dict[tuple[str, int], tuple[int, int]]:
        """The end of each partition of the source when this version is committed."""
        reached: dict[tuple[str, int], tuple[int, int]] = {}
        for number, chunk in enumerate(self.chunks):
            for bucket in chunk:
                before, _ = reached.get(bucket[:2], (bucket.start, 0))
                reached[bucket[:2]] = (bucket.end if number <= version else before, bucket.end)
        return reached


def chunks_of(buckets: Iterable[Bucket], messages_max: int) -> tuple[tuple[Bucket, ...], ...]:
    """Buckets put together, in the order of topic, partition and offset."""
    found: list[tuple[Bucket, ...]] = []
    chunk: list[Bucket] = []
    count = 0
    for bucket in sorted(buckets):
        count += bucket.messages
        if chunk and count > messages_max:
            found.append(tuple(chunk))
            chunk, count = [], bucket.messages
        before = chunk[-1] if chunk else None
        if before is not None and before[:2] == bucket[:2]:  # one span instead of two
            messages = before.messages + bucket.messages
            chunk[-1] = before._replace(end=bucket.end, messages=messages)
        else:
            chunk.append(bucket)
    return (*found, tuple(chunk)) if chunk else tuple(found)


Cut = tuple[str, int, int]  # topic, partition, offset: where a part of a chunk begins


def cuts_of(chunk: Sequence[Bucket], parts: int) -> tuple[Cut, ...]:
    """The cuts of a chunk into this many parts, of about as many messages if these lie evenly."""
    total = sum(bucket.messages for bucket in chunk)
    cuts: list[Cut] = []
    before = 0
    for bucket in chunk:
        while len(cuts) + 1 < parts:
            wanted = total * (len(cuts) + 1) // parts - before
            if wanted >= bucket.messages:
                break
            offset = bucket.start + (bucket.end - bucket.start) * wanted // bucket.messages
            cuts.append((bucket.topic, bucket.partition, offset))
        before += bucket.messages
    return tuple(cuts)


class Kept:
    def __init__(self, directory: str, name: str) -> None:
        self.path = Path(directory) / f"{name}.json"

    def read(self, request: ReplayRequest) -> Plan | None:
        """None when there is none. ConfigError when the name belongs to another replay."""
        try:
            plan = msgspec.json.decode(self.path.read_bytes(), type=Plan)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError("name", str(self.path), f"the plan is damaged: {error}") from error
        before, now = (msgspec.structs.asdict(each) for each in (plan.request, request))
        changed = [f"{n.replace('_', '-')} was {before[n]!r}" for n in now if before[n] != now[n]]
        if changed:
            rule = f"a replay of this name has begun with other settings: {', '.join(changed)}"
            raise ConfigError("name", self.path.stem, rule)
        return plan

    def write(self, plan: Plan) -> None:
        """Durable before the first version is written."""
        self._write(self.path, msgspec.json.encode(plan))

    def note(self, version: int) -> None:
        """nsqd has committed this version. nsqd's own memory counts; this is for the day when it
        has forgotten the replay, which would begin anew then."""
        self._write(self._done, str(version).encode())

    def last(self, plan: Plan, committed: int | None) -> int | None:
        """The last finished version, when nsqd confirms it."""
        try:
            noted = int(self._done.read_text("ascii"))
        except FileNotFoundError:
            return committed
        except ValueError as error:
            raise ConfigError("name", str(self._done), "it holds no number") from error
        if committed is not None and committed >= noted:
            return committed
        if noted == len(plan.chunks) - 1:
            return noted
        rule = f"nsqd has forgotten this replay after chunk {noted + 1} of {len(plan.chunks)}"
        raise ConfigError("name", self.path.stem, f"{rule}: replay the rest under another name")

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, content, mode=0o600)

    @property
    def _done(self) -> Path:
        return self.path.with_suffix(".done")


# --- targets of messages ---
#
# Its own number, where the target has it. Of the other partitions of the source, what has a key
# goes where its key belongs, and what has none goes, all of a partition, to one and the same. So
# whatever a partition of the target gets from one of the source has kept its order.
#
# The number of partitions is the one that the plan noted: a target that grows meanwhile changes
# nothing for the rest of the replay.


def target_partition(partitions: int, has_key: bool) -> Column:
    """In the form of the sink's column `partition`; null: by key. `has_key`: the source has a
    column for it."""
    number = F.col("partition")
    beyond = number % F.lit(partitions)
    if has_key:
        beyond = F.when(F.col("key").isNull(), beyond)
    return F.when(number < partitions, number).otherwise(beyond).cast("int").alias("partition")
