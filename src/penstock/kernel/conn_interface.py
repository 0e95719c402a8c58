"""A client's connection: the part of the kernel's interface that publishers and consumers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel.filter_interface import Filter
    from penstock.kernel.interface import Window
    from penstock.kernel.tail_interface import Tail


class Conn(Protocol):
    """One V2 client connection: input and output buffers, states, counters."""

    @property
    def serial(self) -> int: ...  # unique for the life of the engine, never 0

    owner: Any  # the session object of the daemon; the kernel never looks inside
    rdy_limit: int  # RDY counts no further, whatever the client says; 0: as it says
    rdy: int  # for all windows together; setting it marks them for delivery
    closing: bool  # after CLS: no deliveries, RDY ignored, FIN still taken

    @property
    def windows(self) -> Sequence[Window]: ...  # subscribed, in that order; one RDY is for all
    @property
    def window(self) -> Window | None: ...  # the first of them
    # mono time of the latest command read; 0 before the magic
    @property
    def last_command_ns(self) -> int: ...

    locked: bool  # every command comes out as LINE, the hot ones too
    allowed: set[bytes] | None  # when set: a publish to another topic comes out as TOPIC

    # buffer deliveries up to output_bytes / output_timeout (see output_every)
    @property
    def holds_output(self) -> bool: ...

    # what its message frames have between id and body (pure/extframe.py); set before `subscribe`
    enveloped: bool  # the partition, and the headers or the key
    extended: bool  # the headers
    detailed: bool  # the position

    sample_rate: int  # 0: all
    tag: bytes  # messages that name it are for this consumer (pure/tags.py); set before `subscribe`
    timeout_ns: int  # message timeout of this consumer
    locality: int  # Locality; set before `subscribe`

    # counters
    @property
    def in_flight(self) -> int: ...  # in all windows
    @property
    def message_count(self) -> int: ...
    @property
    def finish_count(self) -> int: ...
    @property
    def requeue_count(self) -> int: ...
    @property
    def published(self) -> dict[bytes, int]: ...  # topic -> messages appended (all verbs)
    @property
    def unsent(self) -> int: ...  # bytes waiting for the socket
    @property
    def pending(self) -> int: ...  # publishes appended, not yet answered
    @property
    def reading(self) -> bool: ...  # detached ones: may be fed now (a little more does no harm)
    @property
    def ended(self) -> bool: ...  # CLOSED was, or is about to be, reported

    def feed(self, data: Buffer) -> None:
        """Detached connections: bytes that arrived. Events appear at the next poll."""

    def feed_eof(self) -> None: ...
    def take_output(self) -> bytes:
        """Detached connections: bytes to send (all that is there)."""
        ...

    def reply(self, frame_type: int, data: bytes) -> None:
        """Queue one frame (0 response, 1 error, 2 message); sent at the next flush."""

    def resume(self) -> None:
        """Look at this connection's bytes again. After TOPIC the same command is read anew."""

    def pass_over(self) -> None:
        """After TOPIC, REFUSED, SPREAD_REFUSED and CROWDED: the publish is answered with an error
        behind which the connection goes on. From `resume` on all of it is read, also what has yet
        to come, and not appended; sizes that are wrong are BAD_PUB as ever. RuntimeError where no
        event waits for its answer."""

    def read_body(self, size_max: int) -> None:
        """After LINE: read a 4-byte size and that many bytes -> BODY, or BODY_SIZE when the size
        is < 1 or > size_max. Memory grows only with bytes received."""
        ...

    def appended(self, tail: Tail, verb: int) -> None:
        """Python appended one publish of this connection (DPUB) to `tail`: owe an OK."""

    def set_filter(self, filter: Filter | None) -> None:
        """What does not pass is finished, and not sent to this consumer nor to another of its
        channel. What was sent already stays in flight."""

    def subscribe(self, window: Window) -> None:
        """Consume from this window, too; RuntimeError for one that it has already. RDY counts what
        is in flight in all of them. FIN goes by the id alone: it is looked for in the window that
        had the latest, then in the others. For that, no two messages in flight on a connection
        may have the same id, so all partitions of a node draw theirs from one range
        (`ids/guid.py`). A message that brought an id of its own is sent with the log's while
        another window of the consumer has a message of that id."""

    def leave(self, window: Window | None = None) -> None:
        """Stop consuming from it (None: from all). What is in flight stays so until it times out,
        and counts no longer for RDY."""

    def find(self, id: int) -> Window | None:
        """The one of `windows` that has this message, in flight or as a stray: for `requeue` and
        `touch`."""
        ...

    def close_after_flush(self) -> None:
        """Send what is queued, half-close, then read and drop (bounded) until the peer closes."""

    def close(self) -> None:
        """Drop it now. CLOSED is still reported."""

    def output_every(self, bytes_max: int, timeout_ns: int) -> None:
        """Hold deliveries back until so many bytes or so much time (0, 0: send every turn)."""
