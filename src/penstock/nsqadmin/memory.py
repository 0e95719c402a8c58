"""Memory that is given back: how the C library's allocator and Python's collector are set.

Every look at a large installation makes texts of megabytes, and throws them away a moment later.
Left to itself glibc raises the size from which it maps memory of its own to the largest that was
ever freed; from then on such texts lie in its heap, among small things that stay, and the holes
between them are never given back. Each of its threads may get a heap too. And Python walks old
objects only after many new ones: what the start has made counts as old, so many pages that browsers
have long left wait for it.
"""

from __future__ import annotations

import ctypes
import gc

from penstock import limits

# Of mallopt(3).
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def give_back_large() -> None:
    """Before threads begin. Does nothing where the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, limits.ADMIN_MAPPED_BYTES)
    mallopt(_M_ARENA_MAX, limits.ADMIN_HEAPS)


def settle() -> None:
    """What is there now stays: the collector need not walk it again, and looks at the rest often
    enough."""
    gc.collect()
    gc.freeze()
    gc.collect()
