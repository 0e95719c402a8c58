"""Slow disk calls of the broker: in a few threads, or at once when that is quicker.

Handing a sync to a thread and taking it back costs about as much as a sync on a quick disk, and
lets small batches go out that the next one could have carried. So a sync that publishers wait for
is run at once, in the loop's thread, as long as such syncs have been quick of late; what arrives
meanwhile gathers in the sockets and makes the next batch. One slow sync is enough to go back to
the threads, until the disk has shown to be quick again. At most one is run at once in a turn: the
syncs of several partitions go side by side.

A `Job` that is no sync, but reads or writes files in bulk, says so by
`teaches = False`: how long it takes tells nothing of the disk's syncs. A job runs in one of the
threads, comes back through `take_done`, and `wake` tells the loop that something is there. It
touches what the loop handed to it and nothing else: values of its own, files that it opens itself,
and kept files that the loop has pinned. No table of the loop is read or changed by a thread; what
both use (`SyncTimes`) has a lock. An
OSError is the job's answer and travels with it. Any other exception is a fault of the program:
`take_done` raises it in the loop's thread, where it stops the daemon; it is never lost in a thread.
"""

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from penstock import limits
from penstock.broker.ports import Job

LESSON = 8  # one sync counts for an eighth of what is believed of the disk


SPAN_NS = 10 * limits.SECOND  # the slowest sync is remembered for each of the last spans
SPANS = 6  # a minute


class SyncTimes:
    """The durations of syncs, as a histogram, and the slowest of the last minute. Every thread adds
    to it."""

    def __init__(self, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._mono_ns = mono_ns
        self._slowest: deque[tuple[int, int]] = deque(maxlen=SPANS + 1)  # span, and its slowest
        self._last_ns: int | None = None  # when the latest one ended
        self._lock = threading.Lock()
        self._counts = [0] * (len(limits.SYNC_BUCKETS_NS) + 1)
        self._total_ns = 0

    def note(self, took_ns: int) -> None:
        bucket = bisect_left(limits.SYNC_BUCKETS_NS, took_ns)
        with self._lock:
            self._counts[bucket] += 1
            self._total_ns += took_ns
            self._last_ns = self._mono_ns()
            span = self._last_ns // SPAN_NS
            if self._slowest and self._slowest[-1][0] == span:
                took_ns = max(took_ns, self._slowest.pop()[1])
            self._slowest.append((span, took_ns))

    def read(self) -> tuple[list[int], int]:
        """The count in each bucket, the last for longer ones; and the total time."""
        with self._lock:
            return list(self._counts), self._total_ns

    def slowest_ns(self) -> int:
        """In the last minute; 0: there was none."""
        with self._lock:
            first = self._mono_ns() // SPAN_NS - SPANS
            return max((took for span, took in self._slowest if span >= first), default=0)

    def since_last_ns(self) -> int | None:
        """The time since the latest one ended; None: there was none."""
        with self._lock:
            return None if self._last_ns is None else self._mono_ns() - self._last_ns


class SyncPool:
    def __init__(self, wake: Callable[[], None], threads: int = limits.SYNC_THREADS) -> None:
        self._wake = wake
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self.done: deque[tuple[Job, BaseException | None]] = deque()
        self._ended = threading.Condition()
        self.times = SyncTimes()
        self._typical_ns = limits.SYNC_AT_ONCE_NS  # a disk has to show that it is quick
        self._out = 0  # submitted and not yet taken; only the loop's thread counts
        self._threads = [
            threading.Thread(target=self._work, name=f"sync-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, awaited: bool = False) -> None:
        self._out += 1
        if awaited and self._typical_ns < limits.SYNC_AT_ONCE_NS and not self.done:
            self.done.append((job, self._run(job)))
        else:
            self._waiting.put(job)

    def _run(self, job: Job) -> BaseException | None:
        """Run it, and learn from how long it took. Threads may lose one another's lessons."""
        start_ns = time.perf_counter_ns()
        try:
            job.run()
        except BaseException as caught:
            return caught
        finally:
            if getattr(job, "teaches", True):
                took_ns = time.perf_counter_ns() - start_ns
                self.times.note(took_ns)
                self._typical_ns += (took_ns - self._typical_ns) // LESSON
        return None

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        taken: list[tuple[Job, OSError | None]] = []
        while self.done:
            job, error = self.done[0]
            if error is not None and not isinstance(error, OSError):
                if taken:  # hand these over first; the fault comes up at the next call
                    break
                self._take_one()
                raise error
            self._take_one()
            taken.append((job, error))
        return taken

    def _take_one(self) -> None:
        self.done.popleft()
        self._out -= 1

    def wait(self) -> None:
        """Block until `take_done` has something to give; at once when nothing is out."""
        if not self._out:
            return
        with self._ended:
            while not self.done:
                self._ended.wait()

    def close(self) -> None:
        """Let the jobs that wait run, then end the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            job = self._waiting.get()
            if job is None:
                return
            error = self._run(job)
            with self._ended:
                self.done.append((job, error))
                self._ended.notify()
            self._wake()
