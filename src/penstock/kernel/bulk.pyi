"""What serves readers of the log in bulk: a part of the kernel that stands apart from all else.

It runs in a thread that calls `run`, until `end`. What it does must cost publishers nothing: so it
neither runs in the loop nor, in the compiled form, ever holds Python's lock, and its thread has a
low priority.

Jobs are given by the loop, with a token each, and come back through `finished`, in any order.
Their descriptors belong to the caller, who keeps them open until then.
"""

from penstock.kernel.types import BulkResult

class Bulk:
    def __init__(self, sends_max: int, stall_ns: int, nice: int) -> None:
        """At most `sends_max` sends at a time; one that makes no progress for so long fails."""
        ...

    def fileno(self) -> int:
        """Readable when `finished` has something to give."""
        ...

    def check(
        self,
        token: int,
        file_fd: int,
        position: int,
        expected: int,
        end: int,
        limit: int,
        from_offset: int,
        to_offset: int,
        bytes_max: int,
    ) -> None:
        """Walk a segment file from `position`, where the batch with offset `expected` stands, to at
        most `end`, or up to the offset `limit` (-1: none), checking each batch. Found are the
        batches from the one that holds `from_offset` on which begin below `to_offset` and fit into
        `bytes_max`, but at least one. Where one is corrupt the range ends; CORRUPT if it is
        empty."""
        ...

    def send(
        self, token: int, socket_fd: int, head: bytes, file_fd: int, position: int, length: int
    ) -> None:
        """`head`, and then that part of the file, to a non-blocking socket that nobody else
        writes to meanwhile."""
        ...

    def read(self, token: int, file_fd: int, position: int, length: int) -> None: ...
    def finished(self) -> list[BulkResult]: ...
    def end(self) -> None:
        """Ask `run` to return. What is not finished then never will be."""
        ...

    def run(self) -> None: ...
