"""Settings of the C library's allocator and of Python's collector.

**Memory that is given back** (nsqadmin). Every look at a large installation makes texts of
megabytes, and throws them away a moment later. Left to itself glibc raises the size from which it
maps memory of its own to the largest that was ever freed; from then on such texts lie in its heap,
among small things that stay, and the holes between them are never given back. Each of its threads
may get a heap too. And Python walks old objects only after many new ones: what the start has made
counts as old, so many pages that browsers have long left wait for it.

**Memory that is kept** (a node of a cluster). What a node copies comes in pieces of some megabytes,
each for a moment. Left to itself glibc maps and unmaps every one, or gives the top of its heap back
after it, and the kernel clears the same pages again and again.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import limits

# Of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def give_back_large() -> None:
    """Call before threads begin."""
    _set({_M_MMAP_THRESHOLD: limits.ADMIN_MAPPED_BYTES, _M_ARENA_MAX: limits.ADMIN_HEAPS})


def keep_pieces() -> None:
    """Short-lived memory stays for its next use."""
    _set(
        {
            _M_MMAP_THRESHOLD: limits.REPLICA_MAPPED_BYTES,
            _M_TRIM_THRESHOLD: limits.REPLICA_KEPT_BYTES,
            _M_TOP_PAD: limits.REPLICA_GROWN_BYTES,
        }
    )


def _set(options: dict[int, int]) -> None:
    """Without effect where the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for name, value in options.items():
        mallopt(name, value)


def settle() -> None:
    """Present objects are permanent: the collector need not visit them again, and visits the rest
    often enough."""
    gc.collect()
    gc.freeze()
    gc.collect()


@contextmanager
def uncollected() -> Iterator[None]:
    """While thousands of objects that stay are made: the collector would go through all of them
    again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
