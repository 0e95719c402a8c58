"""The facts about a run of a pipeline, and their report: messages of the internal topic
`_pipelines`.

A run publishes to the nsqd that its setting `url` names, over the HTTP API that it uses anyway. So
nothing new has to be installed, and it works from any driver that can reach nsqd. nsqadmin reads
the topics of all nsqds and shows the runs (`nsqadmin/runs.py`).

A body is a JSON object. `kind` says which:

- `state`: the run as it is now, whole. The one with the highest `seq` counts, and nothing is added
  up over messages: they may be lost, doubled or come in any order, and a reader may begin anywhere.
  One comes at the start, at the end, and in between no more often than every 2 seconds: when
  something has changed, or after 10 seconds, as a sign of life. A run that says nothing for a
  minute and had not ended was killed, or can't reach nsqd.
- `part`: a part of a page that the run has made, as the audit's report: `form` is what it is,
  `text` the part number `part` of `parts`. The parts, end to end, are the page.

A run is `started` (Spark is not up yet), `running`, and at last `finished`, `stopped` (somebody
asked for an orderly end) or `failed`.

Secrets are left out where a message is made (`Screen`): values of storage options and of
Spark's own settings, user names and queries in URLs.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.command.terminal import short, span
from penstock.errors import PenstockError

Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
Rate = Annotated[float, Meta(ge=0, le=1e15)]
Line = Annotated[str, Meta(max_length=limits.RUN_TEXT_CHARS)]
Word = Annotated[str, Meta(max_length=limits.RUN_NAME_CHARS)]
RunId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
PipelineName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,63}\Z")]
OptionName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,63}\Z")]
Option = bool | int | Line | Annotated[list[Line], Meta(max_length=limits.RUN_OPTIONS_MAX)]
Form = Literal["html", "json"]
HTML, JSON = "html", "json"
Phase = Literal["started", "running", "finished", "stopped", "failed"]
ENDED = frozenset(("finished", "stopped", "failed"))
Log = tuple[str, int]  # topic and partition
PARTS_MAX = -(-limits.RUN_PAGE_CHARS // limits.RUN_PART_CHARS)


class RunMessageInvalid(PenstockError):
    """A message of `_pipelines` that is no report of a run."""


class Report(msgspec.Struct, omit_defaults=True, frozen=True):
    """The progress of a run. None is unknown."""

    rows: Count = 0  # of this run so far
    rows_per_second: Rate = 0.0
    total: Count | None = None  # rows that this run will have done
    lag_rows: Count | None = None  # what the log has and the target has not
    lag_seconds: Seconds | None = None  # the target has everything up to so long ago
    left_seconds: Rate | None = None  # until it is done, or has caught up
    what: Line = ""  # what it is at, when rows alone do not say it

    def line(self) -> str:
        of = f" of {self.total:,}" if self.total is not None else ""
        parts = [self.what] if self.what else []
        parts += [f"{self.rows:,}{of} rows", f"{short(self.rows_per_second)} rows/s"]
        lag_s = None if self.lag_seconds is None else f"{self.lag_seconds:.1f} s"
        if self.lag_rows == 0:  # when the last batch ended: the log may have gone on since then
            parts.append(f"up to date {lag_s} ago" if lag_s else "up to date")
        else:
            parts += [f"{self.lag_rows:,} behind"] if self.lag_rows else []
            parts += [f"lag {lag_s}"] if lag_s else []
        if self.left_seconds is not None:
            parts.append(f"{span(self.left_seconds)} left")
        return ", ".join(parts)


class RunFacts(Report, omit_defaults=True, frozen=True):
    """Further facts about it, reported unchanged, without secrets."""

    said: Line = ""  # the last line that it wrote
    table: Line = ""
    checkpoint: Line = ""
    batch: Count | None = None  # the last one that was committed
    committed_s: Seconds | None = None  # when that was, since 1970
    reason: Line = ""  # why it failed
    outcome: Line = ""  # what came of it, in a few words
    code: Annotated[int, Meta(ge=-255, le=255)] | None = None  # the exit code


class RunState(RunFacts, frozen=True):
    """The state of a run, where it runs; the figures include the rows of attempts that an outage
    ended."""

    phase: Phase = "started"  # "running" as soon as Spark is up
    outages: int = 0  # attempts that ended by one
    waiting: bool = False  # for the next attempt
    version_of: Callable[[], int | None] | None = None  # of the table; asked in another thread
    logs: Mapping[Log, tuple[int, int]] = {}  # (read to, end of the log)
    pages: tuple[tuple[Form, str], ...] = ()  # what it has made to be looked at
    reported_s: float = 0.0  # when the figures were measured, since 1970

    def lag_at(self, now_s: float) -> float | None:
        """In seconds. It grows where nothing is measured, as in an outage."""
        since_s = 0.0 if self.phase in ENDED else now_s - self.reported_s
        return None if self.lag_seconds is None else round(max(self.lag_seconds + since_s, 0.0), 2)


class LogOffsets(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a run in one log."""

    topic: Word
    partition: Count
    at: Count  # the first offset that it has not done
    end: Count  # of the log, when that was looked at last


class RunStatus(
    RunFacts, tag="state", tag_field="kind", omit_defaults=True, frozen=True, kw_only=True
):
    """Times are seconds since 1970, by the clock of the driver."""

    run: RunId
    seq: Count
    pipeline: PipelineName
    state: Phase
    time_s: Seconds
    started_s: Seconds
    name: Word = ""  # under which it was started: the pipeline's, or that of a table in the file
    host: Word = ""
    pid: Count = 0
    version: Word = ""  # of Penstock
    submitted: bool = False  # by spark-submit
    options: Annotated[dict[OptionName, Option], Meta(max_length=limits.RUN_OPTIONS_MAX)] = {}
    logs: Annotated[list[LogOffsets], Meta(max_length=limits.RUN_LOGS_MAX)] = []
    table_version: Count | None = None


class Part(msgspec.Struct, tag="part", tag_field="kind", frozen=True):
    run: RunId
    form: Form
    part: Annotated[int, Meta(ge=0, lt=PARTS_MAX)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_MAX)]
    text: Annotated[str, Meta(max_length=limits.RUN_PART_CHARS)]


_decoder: msgspec.json.Decoder[RunStatus | Part] = msgspec.json.Decoder(RunStatus | Part)
encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> RunStatus | Part:
    """RunMessageInvalid for anything else."""
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunMessageInvalid(str(error)) from error
    if isinstance(found, Part) and found.part >= found.parts:
        raise RunMessageInvalid(f"part {found.part} of {found.parts}")
    return found


def parts_of(run: str, form: Form, text: str) -> Iterator[Part]:
    """A page in messages. Nothing when it is too long: half a page is useless."""
    if len(text) > limits.RUN_PAGE_CHARS:
        return
    size = limits.RUN_PART_CHARS
    starts = range(0, max(len(text), 1), size)
    for number, start in enumerate(starts):
        yield Part(run, form, number, len(starts), text[start : start + size])


def cut(text: str, chars_max: int = limits.RUN_TEXT_CHARS) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
