"""Keeping a table quick to read: many small files become few, and old ones are removed.

A batch a second is 86,400 files a day for each topic. When a partition of the table has gathered
a number of small files they are rewritten as one, in a transaction of its own: a reader sees the
small ones or the large one, never both. This is done in two steps, small files to medium ones and
medium ones to large ones, so that a row is copied two or three times in its life and not once a
minute.

Replaced files stay for readers that still use them, and are removed when they are old enough;
so are files that no transaction has named.

The table's log is kept for a week, so that who follows it, as a nightly stream does, finds where he
was. But each commit lists it: 1,000 versions cost one some 30 ms. So of a table with a batch every
second fewer are kept, and the run says for how long.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Self

from deltalake import WriterProperties
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from penstock import limits
from penstock.command.flags import Kind
from penstock.durations import format_duration
from penstock.errors import PenstockError
from penstock.pipelines import topic_logs
from penstock.pipelines.delta_reader import LakeTable
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import CATALOG_TABLE, Setting, Settings
from penstock.spark.delta_table import Properties, TableLocation

_HOUR_S = 3600
_LOG_RETENTION = "delta.logRetentionDuration"
_STEPS_BYTES = (limits.LAKE_MEDIUM_BYTES, limits.LAKE_LARGE_BYTES)


def care_settings() -> tuple[Setting, ...]:
    hour = _HOUR_S * limits.SECOND
    return (
        CATALOG_TABLE,
        Setting("compact-after", Kind.INT, limits.LAKE_COMPACT_FILES, "rewrite this many small"
             " files of a partition of the table as one; 0: never", bounds=(0, None)),
        Setting("vacuum-every", Kind.DURATION, hour, "time between removals of old files; 0: never",
             bounds=(0, None)),
        Setting("retain", Kind.DURATION, 24 * hour, "how long replaced files stay, for readers that"
             " still use them; of a new table", bounds=(hour, None)),
        Setting("retain-log", Kind.DURATION, 7 * 24 * hour, "how long the table's old versions are"
             " known, for readers that follow it; of many batches the last"
             f" {limits.LAKE_LOG_VERSIONS_MAX:,} at most", bounds=(60 * limits.SECOND, None)),
    )  # fmt: skip


def configuration(settings: Settings) -> dict[str, str]:
    return {
        "delta.checkpointInterval": str(limits.LAKE_CHECKPOINT_COMMITS),
        _LOG_RETENTION: _interval(settings.seconds("retain-log")),
        "delta.deletedFileRetentionDuration": _interval(settings.seconds("retain")),
    }


def compact(location: TableLocation, count_min: int) -> int:
    """Rewrites the files of partitions that have so many small ones. How many were replaced."""
    replaced = 0
    for size in _STEPS_BYTES:
        table = LakeTable(location.uri, options=location.options)
        small = Counter(
            tuple((name, "=", str(value)) for name, value in file.partition.items())
            for file in table.files()
            if file.size_bytes < size
        )
        for part in (part for part, count in small.items() if count >= count_min):
            done = table.delta.optimize.compact(
                partition_filters=list(part),
                target_size=size,
                max_concurrent_tasks=1,  # the rest of the machine is the archive's
                writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
            )
            replaced += int(done["numFilesRemoved"])
    return replaced


def vacuum(location: TableLocation, retain_s: float) -> int:
    """Returns the number of removed files: replaced ones, and ones that no transaction has
    named."""
    table = location.open()
    if table is None:
        return 0
    hours = max(1, -int(-retain_s // _HOUR_S))  # never less than was asked for
    removed = table.vacuum(
        retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return len(removed) + topic_logs.remove_replaced(location, hours * _HOUR_S)


def retain_log(location: TableLocation, wanted_s: float) -> float:
    """How long versions are kept from now on: as configured, or as long as the newest ones took."""
    found = location.files().get_file_info(FileSelector(location.full("_delta_log")))
    versions = sorted(
        (info.base_name, info.mtime) for info in found if info.base_name.endswith(".json")
    )
    kept_s = wanted_s
    if len(versions) > limits.LAKE_LOG_VERSIONS_MAX:
        oldest = versions[-limits.LAKE_LOG_VERSIONS_MAX][1]
        kept_s = min(wanted_s, max(time.time() - oldest.timestamp(), _HOUR_S))

    def changed(known: Properties) -> Properties:
        ours = re.fullmatch(r"interval (\d+) seconds", known.get(_LOG_RETENTION, ""))
        now_s = int(ours[1]) if ours else 0  # others write "7 days", too
        is_near = kept_s * 0.8 < now_s < kept_s * 1.25
        return {} if is_near else {_LOG_RETENTION: _interval(kept_s)}

    location.set_properties(changed)
    return kept_s


def _interval(seconds: float) -> str:
    return f"interval {int(seconds)} seconds"


class Beside:
    """Work beside a query, in steps in a thread. Failures are reported, and retried later: the
    table is complete without it."""

    def __init__(self, progress: Progress, failed: str) -> None:
        self._progress = progress
        self._failed = failed
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._thread is not None:
            self._thread.join()
        if kind is None:
            self._finish()

    def after_batches(self, batches: int) -> None:
        """Call now and then, with the number of batches so far."""
        if self._thread is not None and self._thread.is_alive():
            return
        work = self._due(batches, time.monotonic())
        if work is not None:
            self._thread = threading.Thread(target=self._do, args=(work,))
            self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (DeltaError, PenstockError, OSError) as error:
            self._progress.say(f"{self._failed}: {error}")

    def _due(self, batches: int, now_s: float) -> Callable[[], None] | None:
        raise NotImplementedError

    def _finish(self) -> None:
        """After a query that ended without an error."""
        raise NotImplementedError


class Care(Beside):
    def __init__(self, location: TableLocation, settings: Settings, progress: Progress) -> None:
        super().__init__(progress, "files were not compacted or removed")
        self._location = location
        self._settings = settings
        self._count_min = settings.number("compact-after")
        self._every_s = settings.seconds("vacuum-every")
        self._compacted_at = 0  # batches
        self._vacuumed_s = time.monotonic()

    def _finish(self) -> None:
        """Looks a last time when this run was all there is."""
        if self._settings.flag("once"):
            self._do(partial(self._work, bool(self._count_min), bool(self._every_s)))

    def _due(self, batches: int, now_s: float) -> Callable[[], None] | None:
        compacts = bool(self._count_min) and batches - self._compacted_at >= self._count_min
        vacuums = bool(self._every_s) and now_s - self._vacuumed_s >= self._every_s
        self._compacted_at = batches if compacts else self._compacted_at
        self._vacuumed_s = now_s if vacuums else self._vacuumed_s
        return partial(self._work, compacts, vacuums) if compacts or vacuums else None

    def _work(self, compacts: bool, vacuums: bool) -> None:
        replaced = compact(self._location, self._count_min) if compacts else 0
        if replaced:
            self._progress.say(f"compacted {replaced} files")
        if not vacuums:
            return
        removed = vacuum(self._location, self._settings.seconds("retain"))
        if removed:
            self._progress.say(f"removed {removed} old files")
        wanted_s = self._settings.seconds("retain-log")
        log_s = retain_log(self._location, wanted_s)
        if log_s < wanted_s:
            kept = format_duration(int(log_s) * limits.SECOND)
            self._progress.say(
                f"the table's log goes back {kept} only, as batches are frequent: a longer "
                "--trigger keeps it longer"
            )
