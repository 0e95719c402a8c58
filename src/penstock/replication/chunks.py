"""Payloads of frames: the sender cuts them into chunks, the receiver puts them together again.

A payload follows the fields of a frame: the batches of an append, or a record of a channel journal.
It may be as large as the largest message, and a link carries many partitions, so nothing larger
than a chunk is sent whole: all chunks but the last go ahead in separate frames, and the frame that
the payload belongs to carries the last. Frames of other partitions may come between them.

| a chunk | then |
|---|---|
| at 0 | a payload begins; an unfinished one of this partition and kind is dropped |
| at the payload's end, of the same session and length | it is added |
| anything else | the link ends: a lane keeps the order of a partition's frames |

An unfinished payload is dropped with its link, and with the hello of another session. A receiver
never holds more than was announced, and the sum of all announcements is bounded. A sender keeps to
the same bounds.

Each chunk has a checksum of its bytes alone: it is computed once, however many replicas get it. The
chunks of an append have none, since its batches have their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer


class Chunk(NamedTuple):
    parts: Sequence[Buffer]
    length: int
    crc: int


class Payload(NamedTuple):
    """The payload of one frame, or of the same frame to several replicas."""

    length: int
    chunks: tuple[Chunk, ...]  # at least one


def cut(data: Buffer, is_append: bool = False) -> Payload:
    chunk_bytes = limits.REPLICA_CHUNK_BYTES
    view = memoryview(data)
    length = view.nbytes
    if length <= chunk_bytes:
        return Payload(length, (_chunk(data, is_append),))
    if length > limits.REPLICA_PAYLOAD_BYTES_MAX:
        raise ValueError(f"{length} bytes, at most {limits.REPLICA_PAYLOAD_BYTES_MAX} are sent")
    parts = (view[at : at + chunk_bytes] for at in range(0, length, chunk_bytes))
    return Payload(length, tuple(_chunk(part, is_append) for part in parts))


def _chunk(data: Buffer, is_append: bool) -> Chunk:
    return Chunk((data,), memoryview(data).nbytes, 0 if is_append else crc32c(data))


def of_append(buffers: Sequence[Buffer], length: int) -> Payload:
    """The payload of an append in several buffers; a single chunk is not copied."""
    if length <= limits.REPLICA_CHUNK_BYTES:
        return Payload(length, (Chunk(buffers, length, 0),))
    return cut(b"".join(buffers), is_append=True)


class Key(NamedTuple):
    """Whose payload it is. Of each there is one at a time."""

    identity: int
    partition: int
    kind: int  # of the frame that the payload belongs to


class _Unfinished:
    __slots__ = ("data", "have", "session")

    def __init__(self, session: int, total: int) -> None:
        self.session = session
        self.data = bytearray(total)  # the system gives the memory as it is filled
        self.have = 0

    @property
    def total(self) -> int:
        return len(self.data)

    def add(self, data: bytes | memoryview) -> None:
        end = self.have + len(data)
        self.data[self.have : end] = data
        self.have = end


class Assembly:
    """The unfinished payloads of one link's lane. Raises ValueError for input that no sender
    produces."""

    __slots__ = ("_announced", "_unfinished")

    def __init__(self) -> None:
        self._unfinished: dict[Key, _Unfinished] = {}
        self._announced = 0

    @property
    def count(self) -> int:
        return len(self._unfinished)

    @property
    def held_bytes(self) -> int:
        return sum(one.have for one in self._unfinished.values())

    def add(self, key: Key, session: int, total: int, at: int, data: bytes | memoryview) -> None:
        """A chunk that is not the last."""
        if at == 0:
            self._begin(key, session, total)
        one = self._continued(key, session, total, at)
        if not data or at + len(data) >= total:
            raise ValueError(f"a chunk of {len(data)} bytes at {at} of {total}: it is not the last")
        one.add(data)

    def _begin(self, key: Key, session: int, total: int) -> None:
        self._drop(key)
        if total > limits.REPLICA_PAYLOAD_BYTES_MAX:
            raise ValueError(
                f"{total} bytes in chunks, at most {limits.REPLICA_PAYLOAD_BYTES_MAX} are taken"
            )
        if len(self._unfinished) >= limits.REPLICA_UNFINISHED_MAX:
            raise ValueError(f"more than {limits.REPLICA_UNFINISHED_MAX} payloads are unfinished")
        if self._announced + total > limits.REPLICA_UNFINISHED_BYTES_MAX:
            raise ValueError(
                f"{self._announced + total} bytes are announced in chunks, at most "
                f"{limits.REPLICA_UNFINISHED_BYTES_MAX} are taken"
            )
        self._unfinished[key] = _Unfinished(session, total)
        self._announced += total

    def _continued(self, key: Key, session: int, total: int, at: int) -> _Unfinished:
        one = self._unfinished.get(key)
        if one is None or (one.session, one.total, one.have) != (session, total, at):
            raise ValueError(f"a chunk at {at} of {total} bytes continues nothing")
        return one

    def finish(
        self, key: Key, session: int, before: int, data: memoryview
    ) -> bytearray | memoryview:
        """The whole payload of a frame, of which `before` bytes went ahead and `data` came now. It
        is `data` itself if nothing went ahead."""
        if before == 0:
            if self._unfinished:
                self._drop(key)
            return data
        one = self._continued(key, session, before + len(data), before)
        self._drop(key)
        one.add(data)
        return one.data

    def drop_other_sessions(self, key: Key, session: int) -> None:
        """A session has begun: unfinished payloads of others are dropped."""
        one = self._unfinished.get(key)
        if one is not None and one.session != session:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        one = self._unfinished.pop(key, None)
        if one is not None:
            self._announced -= one.total

    def validate(self) -> None:
        announced = sum(one.total for one in self._unfinished.values())
        if announced != self._announced:
            raise RuntimeError(f"{announced} bytes are announced, {self._announced} are counted")
        for key, one in self._unfinished.items():
            if one.have >= one.total:
                raise RuntimeError(f"{key}: {one.have} of {one.total} bytes are unfinished")
