"""Files that stay open between uses, within a budget: a node has more topics than descriptors.

A kept file is closed when others need its descriptor, the one that was opened first before all
others, and opened again by its next use. Whoever keeps it notices nothing. Two things must not be
closed, and are pinned meanwhile: a file that another thread works on, and a log file with data that
is not synced, since a failed write-back may be reported to those only that had the file open.

The table belongs to the loop's thread, as the kept files do. A job for another thread pins its
files before it goes out (`File.pin`), which opens them: the thread then only uses descriptors.

The rest of the descriptors is for connections, save for a reserve: however many clients come, the
log can still open what it needs.
"""

import errno
import resource
import threading
from typing import Protocol

from penstock import limits

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Suspendable(Protocol):
    pinned: bool

    def suspend(self) -> None:
        """Give the descriptor back until the next use."""
        ...


class OpenFiles:
    __slots__ = ("_files", "_files_max", "_thread")

    def __init__(self, files_max: int) -> None:
        self._files: dict[Suspendable, None] = {}  # in the order in which they were opened
        self._files_max = files_max
        self._thread = threading.get_ident()

    def __len__(self) -> int:
        return len(self._files)

    @property
    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def keep(self, file: Suspendable) -> None:
        """The file was just opened."""
        self._files[file] = None
        if len(self._files) > self._files_max:
            self.suspend_some(file)

    def drop(self, file: Suspendable) -> None:
        """The file was closed."""
        self._files.pop(file, None)

    def suspend_some(self, besides: Suspendable | None = None) -> int:
        """Close the excess, and a quarter more, so that this is rare. Returns how many were closed:
        none in another thread, which does not own them."""
        if not self.is_own_thread:
            return 0
        wanted = max(len(self._files) - self._files_max, 0) + max(self._files_max // 4, 1)
        chosen = [file for file in self._files if not file.pinned and file is not besides][:wanted]
        for file in chosen:
            del self._files[file]
            file.suspend()
        return len(chosen)


def descriptors_max() -> int:
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limits.DESCRIPTORS_MAX if found == resource.RLIM_INFINITY else found


def kept_files_max() -> int:
    return max(descriptors_max() // limits.DESCRIPTORS_KEPT_SHARE, 1)


def connections_end() -> int:
    """The system assigns the lowest free number. A connection whose descriptor has this number or a
    higher one came when only the reserve was left."""
    return descriptors_max() - descriptors_max() // limits.DESCRIPTORS_RESERVED_SHARE


def out_of_connections() -> str:
    count, left = descriptors_max(), descriptors_max() - connections_end()
    return (
        f"of {count} descriptors all but {left} are in use, and these are for the log; "
        "raise the limit (ulimit -n, LimitNOFILE=)"
    )


def out_of_descriptors(error: OSError) -> OSError:
    """The same error with the limit, and the remedy."""
    reason = f"too many open files: the limit is {descriptors_max()}, see ulimit -n or LimitNOFILE="
    return OSError(error.errno, reason, error.filename)
