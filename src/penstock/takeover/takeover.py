"""The data path of an official nsqd becomes ours: nothing lost, nothing doubled, however often it
is interrupted.

Everything is built beside what is there, made durable, and then one rename says that it counts.
Names in the data path: OLD are the files of nsqd (`diskqueue.py`), BUILD is `takeover.tmp/`,
COMMIT is `takeover.json`, ASIDE is `nsqd-old/` (`nsqd-old-2/` and so on when that is taken).

| found at the start | meaning | what is done |
|---|---|---|
| neither OLD nor COMMIT | nothing to take over | a BUILD left behind is removed |
| OLD, no BUILD, no COMMIT | not begun | steps 1 to 6 |
| BUILD, no COMMIT | interrupted in step 2 | BUILD is removed; steps 1 to 6 |
| COMMIT, BUILD | interrupted before step 4 | steps 4 to 6 |
| COMMIT, no BUILD, some of OLD | interrupted in step 5 | steps 5 and 6 |
| COMMIT, no BUILD, no OLD | interrupted before step 6 | step 6 |
| OLD and topics of ours, no COMMIT | two sets of data | refused: nobody can say which is newer |
| the same, but OLD names no topic | nsqd was started here by mistake | OLD is left alone |
| COMMIT, but OLD has changed | nsqd ran in between | refused: it may hold new messages |

1. Look: the lock of nsqd itself is taken (`flock` on the directory), so that none is running. An
   empty `topics/` is removed.
2. Build all topics in BUILD: logs, channel journals, `topic.json`, each synced, then the
   directories. Old files are only read. An error (a full disk, an unreadable file) removes BUILD,
   and all is as before.
3. Commit: COMMIT is written beside, synced, renamed, and the directory synced. It holds the report
   and the list of OLD with sizes. Before this instant only OLD counts, from then on only BUILD.
4. BUILD is renamed to `topics/`.
5. Each file of OLD is moved into ASIDE. Nothing is ever deleted: that is for the operator.
6. COMMIT becomes `takeover-report.json`.

Each step is synced before the next begins, and 4 to 6 can be done again from any point: what is
not there any more has been moved.

Old data may also come from another directory (`penstock migrate --to`). Then step 5 has nothing to
move, and the source is not written to.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from penstock import limits
from penstock.broker.options import BrokerOptions
from penstock.broker.topics import directories
from penstock.clock import Clock
from penstock.errors import DirectoryLocked, StorageError
from penstock.ids.guid import IdRange
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.seal import seal, unseal
from penstock.log.segment import LogSettings
from penstock.takeover.diskqueue import OldFiles, list_old_files, read_metadata
from penstock.takeover.diskrecords import Tally
from penstock.takeover.oldtopics import OldTopic, Survey
from penstock.takeover.topicbuild import BuildSettings, Progress, TopicBuild, TopicReport

BUILD = "takeover.tmp"
COMMIT = "takeover.json"
REPORT = "takeover-report.json"
ASIDE = "nsqd-old"
SAID_EVERY_NS = 5 * limits.SECOND  # it may take minutes, and no client is served meanwhile
UNCOMPARED = -1  # for a size. nsqd 1.0 left a link to nsqd.dat, which leads nowhere in the end
COMMIT_BYTES_MAX = 1 << 30  # some 200 bytes for each file of nsqd, so far beyond any real one

_log = logging.getLogger("penstock.broker")


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """The result of a take-over; also the file that commits it."""

    source: str
    built_ns: int
    aside: str  # where the files of nsqd are moved, empty: they stay where they are
    files: dict[str, int]  # to be moved, with sizes (UNCOMPARED: nothing to read in them)
    topics: list[TopicReport]
    notes: list[str]
    version: int = 1

    @property
    def messages(self) -> int:
        return sum(topic.stored for topic in self.topics)

    @property
    def bad_bytes(self) -> int:
        return sum(queue.found.bad_bytes for topic in self.topics for queue in topic.queues)


class Takeover:
    """From `source` into `target`, which the caller has locked."""

    def __init__(self, disk: Disk, source: str, target: str, settings: BuildSettings) -> None:
        self._disk = disk
        self._source = source
        self._target = target
        self._settings = settings
        self._topics_path = self._path(directories.TOPICS)
        self._bytes_done = self._bytes_total = 0

    def _path(self, name: str) -> str:
        return os.path.join(self._target, name)

    def run(self) -> Report | None:
        """None when there is nothing to take over. Raises StorageError."""
        try:
            return self._run()
        except OSError as error:
            raise StorageError(self._source, f"cannot be taken over: {error}") from error

    def _run(self) -> Report | None:
        disk = self._disk
        if disk.exists(self._path(COMMIT)):
            report = self._read_commit()
            with _locked(disk, self._target):
                self._check_unchanged(report)
                self._finish(report)
            return report
        if disk.exists(self._path(BUILD)):
            directories.remove_tree(disk, self._path(BUILD))
        files = list_old_files(disk.listdir(self._source))
        if not files:
            return None
        if self._has_topics() and not look(disk, self._source, files).topics:
            _log.warning("%s: nsqd's files name no topic, and are left alone", self._source)
            return None
        with _locked(disk, self._source):
            self._clear_the_way()
            report = self._build(files)
            self._commit(report)
            self._finish(report)
        return report

    def _has_topics(self) -> bool:
        path = self._topics_path
        return self._disk.is_directory(path) and bool(self._disk.listdir(path))

    def _clear_the_way(self) -> None:
        if not self._disk.is_directory(self._topics_path):
            return
        if self._has_topics():
            raise StorageError(
                self._target,
                "there are topics of Penstock and files of an official nsqd (nsqd.dat, "
                "*.diskqueue.*) in one data path, and it is unknown which are newer. Move one set "
                "away. `penstock migrate --to` takes nsqd's files over into another directory",
            )
        self._disk.rmdir(self._topics_path)
        self._disk.sync_directory(self._target)

    # --- step 2 ---

    def _build(self, files: OldFiles) -> Report:
        survey = look(self._disk, self._source, files)
        for note in survey.notes:
            _log.warning("nsqd's data: %s", note)
        try:
            topics = self._build_topics(list(survey.topics.values()))
        except (OSError, StorageError):
            with suppress(OSError):  # the next start removes what is left
                directories.remove_tree(self._disk, self._path(BUILD))
            raise
        in_place = self._source == self._target
        return Report(
            source=self._source,
            built_ns=self._settings.clock.wall_ns(),
            aside=self._aside() if in_place else "",
            files=self._sizes(files) if in_place else {},
            topics=topics,
            notes=survey.notes,
        )

    def _build_topics(self, topics: list[OldTopic]) -> list[TopicReport]:
        disk, build = self._disk, self._path(BUILD)
        self._bytes_total = 2 * sum(
            queue.data_bytes(disk, self._source) for topic in topics for queue in topic.queues
        )
        ids = IdRange(self._settings.node_id)
        disk.mkdir(build)
        reports = []
        for topic in topics:
            advance = partial(self._advance, topic.name)
            one = TopicBuild(disk, self._source, build, topic, ids, self._settings, advance)
            reports.append(one.run())
            _report_topic(reports[-1])
        disk.sync_directory(build)
        disk.sync_directory(self._target)
        return reports

    def _advance(self, topic: str, count: int) -> None:
        self._bytes_done += count
        self._settings.on_progress(Progress(topic, self._bytes_done, self._bytes_total))

    def _sizes(self, files: OldFiles) -> dict[str, int]:
        unread = set(files.leftovers)
        return {name: UNCOMPARED if name in unread else self._size(name) for name in files.all}

    def _size(self, name: str) -> int:
        return self._disk.size(os.path.join(self._target, name))

    def _aside(self) -> str:
        name, number = ASIDE, 1
        while self._disk.exists(self._path(name)):
            number += 1
            name = f"{ASIDE}-{number}"
        return name

    # --- steps 3 to 6 ---

    def _commit(self, report: Report) -> None:
        replace_file(self._disk, self._path(COMMIT), seal(msgspec.json.encode(report)))
        self._disk.sync_directory(self._target)

    def _read_commit(self) -> Report:
        path = self._path(COMMIT)
        try:
            data = unseal(read_file(self._disk, path, COMMIT_BYTES_MAX))
            return msgspec.json.decode(data, type=Report)
        except (ValueError, msgspec.DecodeError) as error:
            raise StorageError(path, f"is not what this version writes: {error}") from error

    def _check_unchanged(self, report: Report) -> None:
        """nsqd may have been started once more after the commit."""
        if not report.files:
            return
        there = set(self._disk.listdir(self._target))
        moved = self._moved(report)
        changed = set(list_old_files(there).all) - report.files.keys()
        for name, size in report.files.items():
            if (name in there) == (name in moved) or (
                name in there and size != UNCOMPARED and self._size(name) != size
            ):
                changed.add(name)
        if changed:
            raise StorageError(
                self._target,
                f"an official nsqd has run here after its data were taken over ({min(changed)} "
                f"has changed). To begin again with what it left, put the files of {report.aside} "
                f"back, and remove {COMMIT}, {BUILD} and {directories.TOPICS}; to give up what it "
                "did, move its files away",
            )

    def _moved(self, report: Report) -> set[str]:
        aside = self._path(report.aside)
        return set(self._disk.listdir(aside)) if self._disk.exists(aside) else set()

    def _finish(self, report: Report) -> None:
        disk, target = self._disk, self._target
        if disk.exists(self._path(BUILD)):
            disk.rename(self._path(BUILD), self._topics_path)
            disk.sync_directory(target)
        if report.files:
            self._move_aside(report)
        disk.rename(self._path(COMMIT), self._path(REPORT))
        disk.sync_directory(target)
        _log.info("%d messages of nsqd are taken over: %s", report.messages, self._path(REPORT))
        if report.files:
            notice = "nsqd's files are kept in %s; remove it when they are not wanted any more"
            _log.info(notice, self._path(report.aside))

    def _move_aside(self, report: Report) -> None:
        disk, aside = self._disk, self._path(report.aside)
        disk.mkdir(aside)
        disk.sync_directory(self._target)
        there = set(disk.listdir(self._target))
        for name in report.files:
            if name in there:
                disk.rename(self._path(name), os.path.join(aside, name))
        disk.sync_directory(aside)
        disk.sync_directory(self._target)


@contextmanager
def _locked(disk: Disk, path: str) -> Iterator[None]:
    """By nsqd's own lock: it locks the directory itself."""
    try:
        lock = disk.lock(path)
    except BlockingIOError as error:
        raise DirectoryLocked(path, "an official nsqd is running on this data path") from error
    try:
        yield
    finally:
        lock.release()


def look(disk: Disk, source: str, files: OldFiles) -> Survey:
    metadata = read_metadata(disk, source, files.metadata) if files.metadata else None
    return Survey(disk, source, files, metadata)


def count(disk: Disk, source: str, all_bad: bool) -> Report:
    """The contents that a take-over would read; nothing is written. Raises StorageError."""
    try:
        files = list_old_files(disk.listdir(source))
        survey = look(disk, source, files)
        topics = []
        for topic in survey.topics.values():
            queues = []
            for queue in topic.queues:
                tally = Tally()
                for _ in queue.read(disk, source, tally, all_bad):
                    pass  # the tally counts
                queues.append(queue.report(tally))
            topics.append(TopicReport(topic.name, queues, 0, 0))
    except OSError as error:
        raise StorageError(source, f"cannot be read: {error}") from error
    return Report(source, 0, "", {}, topics, survey.notes)


def _report_topic(report: TopicReport) -> None:
    _log.info("TOPIC(%s): %d messages of nsqd's are stored", report.name, report.stored)
    for queue in report.queues:
        found = queue.found
        _log.info("%s: %d messages of %d bytes read", queue.name, found.messages, found.body_bytes)
        for note in found.notes:
            _log.warning("%s: %s", queue.name, note)
        for span in found.bad:
            where = f"bytes {span.start} to {span.end - 1} of {span.file}"
            _log.warning("%s: no message could be read in %s", queue.name, where)


# --- when nsqd starts ---


def take_over_at_start(
    disk: Disk, data_path: str, options: BrokerOptions, clock: Clock
) -> Report | None:
    """Take over the data of an official nsqd, if the directory holds them. `Broker.open` calls it,
    with the directory locked. Raises StorageError."""
    said_ns = clock.mono_ns()

    def report(progress: Progress) -> None:
        nonlocal said_ns
        now_ns = clock.mono_ns()
        if now_ns - said_ns >= SAID_EVERY_NS:
            said_ns = now_ns
            percent = 100 * progress.bytes_done // max(progress.bytes_total, 1)
            _log.info("taking over nsqd's data: %d %%, at %s", percent, progress.topic)

    log = LogSettings(options.segment_bytes_max, options.segment_age_max_ns)
    journal_bytes_max = options.journal_bytes_max
    settings = BuildSettings(options.node_id, clock, log, journal_bytes_max, on_progress=report)
    return Takeover(disk, data_path, data_path, settings).run()
