"""The audit over trace tables with planted faults. DuckDB counts the same in its own words."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import ConfigError, DataLost
from penstock.pipelines.audit import program as audit
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import defaults

from ..tracetable import T0_US, Events, healthy, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MILLION = 1_000_000
LATER = "2026-09-22T00:00:00Z"  # long after the last event


class Audited:
    def __init__(self, capsys: pytest.CaptureFixture[str], spark: SparkSession, **given: Any):
        self.trace = given.get("trace", "")
        settings = defaults(audit.SETTINGS, topic="orders", json=True, **given)
        audit.check(settings)
        self.code = audit.run(spark, settings, Progress("audit", stream=io.StringIO()))
        self.report: dict[str, Any] = json.loads(capsys.readouterr().out)["audit"]

    def counts(self) -> dict[tuple[str, str | None], int]:
        return {(f["kind"], f["channel"]): f["count"] for f in self.report["findings"]}

    def offsets(self, kind: str) -> list[int]:
        return [e["offset"] for f in self.report["findings"] if f["kind"] == kind
                for e in f["examples"]]  # fmt: skip

    def channel(self, name: str = "billing") -> dict[str, Any]:
        found: dict[str, Any] = next(c for c in self.report["channels"] if c["name"] == name)
        return found


@pytest.fixture
def audited(spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def run(table: Any, **given: Any) -> Audited:
        path = write(tmp_path / "trace", table)
        return Audited(capsys, spark, trace=str(path), **{"as-of": LATER, **given})

    return run


def plant(events: Events) -> dict[int, int]:
    """A fault of each kind; gives the ids that stand twice."""
    events.drop("sent", 100_000)
    events.drop("finished", 100_000)  # lost
    events.drop("finished", 200_001)  # stuck
    events.add("sent", 300_002, T0_US + 300_002 * 100 + 720, attempts=2)  # delivered twice
    events.swap("sent", 400_003, 400_004)
    return {500_005: 500_004}


def duck(path: Path, query: str) -> list[tuple[Any, ...]]:
    files = [uri.removeprefix("file://") for uri in DeltaTable(path).file_uris()]
    with duckdb.connect() as door:
        door.read_parquet(files).create_view("e")
        return door.execute(re.sub(r"\boffset\b", '"offset"', query)).fetchall()


DUCK_LOST = """
SELECT offset FROM e WHERE event = 'published' AND offset NOT IN
    (SELECT offset FROM e WHERE event <> 'published')
"""
DUCK_STUCK = """
SELECT offset FROM e WHERE event = 'sent'
EXCEPT SELECT offset FROM e WHERE event = 'finished'
"""
DUCK_TWICE = """
SELECT offset FROM (
    SELECT offset, list(event ORDER BY trace_offset, trace_index) AS steps
    FROM e WHERE event <> 'published' GROUP BY offset HAVING count(*) > 2)
WHERE array_to_string(steps, ' ') LIKE '%sent sent%'
"""
DUCK_SWAPPED = """
SELECT offset FROM (
    SELECT offset, lag(offset) OVER (ORDER BY trace_offset, trace_index) AS before
    FROM e WHERE event = 'sent' AND attempts = 1) WHERE offset < before
"""
DUCK_SAME_ID = """
SELECT max(offset) FROM e WHERE event = 'published' GROUP BY message_id HAVING count(*) > 1
"""
DUCK_LATENCY = """
SELECT quantile_cont(f - p, [0.5, 0.9, 0.99, 0.999]), max(f - p) FROM (
    SELECT offset, message_id, min(epoch_us(time)) FILTER (event = 'published') AS p,
        min(epoch_us(time)) FILTER (event = 'finished') AS f
    FROM e GROUP BY ALL)
"""


@pytest.mark.timeout(600)
def test_faults_among_a_million_are_found_and_duckdb_agrees(audited: Any, tmp_path: Path) -> None:
    events = healthy(MILLION)
    same_ids = plant(events)
    found = audited(events.table(same_ids))
    assert found.code == audit.FINDINGS
    table = tmp_path / "trace"
    for kind, query in {
        "lost": DUCK_LOST,
        "stuck": DUCK_STUCK,
        "sent_again": DUCK_TWICE,
        "out_of_order": DUCK_SWAPPED,
        "same_id": DUCK_SAME_ID,
    }.items():
        assert found.offsets(kind) == [offset for (offset,) in duck(table, query)], kind
    assert found.counts() == {
        ("lost", "billing"): 1,
        ("stuck", "billing"): 1,
        ("sent_again", "billing"): 1,
        ("out_of_order", "billing"): 1,
        ("same_id", None): 1,
    }
    ((percentiles, most),) = duck(table, DUCK_LATENCY)
    total = found.channel()["waits"]["total"]
    assert list(total["percentiles"].values()) == pytest.approx(percentiles, rel=0.02)
    assert total["most"] == pytest.approx(most, rel=0.01)
    assert found.channel()["judged"] == MILLION
    assert found.report["coverage"]["share"] == 1.0


def test_a_healthy_topic_is_clean(audited: Any, tmp_path: Path) -> None:
    page_path = tmp_path / "report.html"
    found = audited(healthy(3000, ("billing", "mail")).table(), html=str(page_path))
    assert (found.code, found.counts()) == (0, {})
    assert [c["name"] for c in found.report["channels"]] == ["billing", "mail"]
    assert "clean" in page_path.read_text()


def test_only_what_was_traced_is_judged(audited: Any) -> None:
    """Tracing of the channel began late: what it did before is unknown, and no fault."""
    events = healthy(3000)
    events.keep_where((events.channel < 0) | (events.offset >= 1000))
    found = audited(events.table())
    assert (found.code, found.counts()) == (0, {})
    assert (found.channel()["messages"], found.channel()["judged"]) == (3000, 2000)
    assert "1,000 of 3,000" in found.report["notes"][0]


def test_a_redelivery_from_before_the_tracing_moves_no_mark(audited: Any) -> None:
    events = healthy(3000)
    events.keep_where((events.channel < 0) | (events.offset >= 1000))
    events.add("sent", 7, T0_US + 2500 * 100, attempts=3)
    events.add("finished", 7, T0_US + 2600 * 100, attempts=3)
    assert audited(events.table()).counts() == {}


def test_a_sampled_topic_says_what_it_knows(audited: Any) -> None:
    events = healthy(4000)
    events.keep_where(events.offset % 4 == 0)
    found = audited(events.table())
    assert (found.code, found.counts()) == (0, {})
    assert found.report["coverage"]["traced"] == 1000
    assert found.report["coverage"]["share"] == pytest.approx(0.25, abs=0.001)


def test_messages_with_trace_ids_do_not_make_the_others_lost(audited: Any) -> None:
    """The topic is traced by a switch, the channel is not: it shows the ones with trace ids."""
    events = healthy(3000)
    with_id = {offset: offset + 1 for offset in range(0, 3000, 100)}
    events.keep_where((events.channel < 0) | (events.offset % 100 == 0))
    events.drop("sent", 1500)
    events.drop("finished", 1500)
    found = audited(events.table(trace_ids=with_id))
    assert found.counts() == {("lost", "billing"): 1}
    assert found.channel()["judged"] == 30


def test_a_backlog_is_not_lost(audited: Any) -> None:
    events = healthy(3000)
    events.keep_where((events.channel < 0) | (events.offset < 2000))
    found = audited(events.table())
    assert found.counts() == {}
    assert found.channel()["fates"]["unsent"] == 1000


def test_what_was_emptied_is_neither_lost_nor_stuck(audited: Any) -> None:
    events = healthy(3000)
    unsent = (events.offset >= 1000) & (events.offset < 1500) & (events.channel >= 0)
    unfinished = (events.offset >= 1500) & (events.offset < 1600) & (events.kind == 2)
    events.keep_where(~(unsent | unfinished))
    found = audited(events.table(ranges=((1000, 300), (1200, 400))))
    assert found.counts() == {}
    assert found.channel()["fates"]["ended"] == 600


def test_what_was_stepped_over_as_corrupt_is_lost(audited: Any) -> None:
    """Never sent, at the end of the log too; sent and not finished; but not what was finished."""
    events = healthy(3000)
    unsent = ((events.offset >= 1000) & (events.offset < 1100)) | (events.offset >= 2990)
    unfinished = (events.offset == 1100) & (events.kind == 2)
    events.keep_where(~((unsent & (events.channel >= 0)) | unfinished))
    found = audited(events.table(ranges=((1000, 102), (2990, 10)), fate="corrupt"))
    assert found.counts() == {("lost", "billing"): 111}
    assert found.code == audit.FINDINGS
    (finding,) = found.report["findings"]
    assert "corrupt" in finding["examples"][0]["note"]


def test_what_may_have_been_delivered_in_a_hole_of_the_trace_is_not_lost(audited: Any) -> None:
    events = healthy(20_000)
    for name in ("sent", "finished"):
        events.drop(name, 15_000)
    table = events.table()
    body = table["trace_offset"].to_numpy()
    found = audited(table.filter((body < 30) | (body >= 34)))
    counts = found.counts()
    assert (counts["trace_hole", None], counts["lost", "billing"]) == (4, 1)
    assert found.offsets("lost") == [15_000]
    assert any("the trace has holes" in note for note in found.report["notes"])


def test_no_more_is_covered_than_there_is(audited: Any, tmp_path: Path) -> None:
    """Of 1,000 messages that were traced the archive has 900."""
    table = healthy(1000).table()
    published = table.filter(pc.field("event") == "published")
    names = ["date", "topic", "partition", "offset"]
    rows = published.select(names).append_column("id", published["message_id"])
    rows = rows.append_column("timestamp", published["time"]).slice(0, 900)
    write_deltalake(tmp_path / "archive", rows)
    coverage = audited(table, archive=str(tmp_path / "archive")).report["coverage"]
    assert (coverage["traced"], coverage["messages"], coverage["share"]) == (1000, 1000, 1.0)
    assert coverage["basis"] == "only 900 of them counted in the archive"


def test_a_delayed_message_is_not_stuck(audited: Any) -> None:
    events = healthy(100)
    events.drop("finished", 50)
    end = T0_US + 50 * 100 + 900
    events.add("requeued", 50, end)
    events.add("delayed", 50, end + 1)
    found = audited(events.table())
    assert found.counts() == {}
    assert found.channel()["fates"]["delayed"] == 1


def test_stuck_is_measured_from_the_given_time(audited: Any, spark: Any, capsys: Any) -> None:
    events = healthy(100)
    events.drop("finished", 50)
    found = audited(events.table(), **{"as-of": ""})
    assert (found.code, found.counts()) == (0, {})
    later = Audited(capsys, spark, trace=found.trace, **{"as-of": LATER})
    assert later.counts() == {("stuck", "billing"): 1}


def test_each_repeat_has_its_name(audited: Any) -> None:
    events = healthy(300)
    last = int(events.time_us.max()) + 1000
    events.add("finished", 10, last)
    events.add("sent", 20, last, attempts=2)
    events.add("finished", 20, last + 5, attempts=2)
    events.add("requeued", 30, last)
    found = audited(events.table())
    assert found.counts() == {("finished_twice", "billing"): 1, ("sent_after_finish", "billing"): 1}
    assert (found.offsets("finished_twice"), found.offsets("sent_after_finish")) == ([10], [20])


def test_order_across_buckets(audited: Any) -> None:
    """Neighbours that are sorted in different buckets are compared too."""
    events = healthy(30_000)  # 90,000 events in 180 bodies, 64 to a bucket
    for first in range(5, 29_990, 10):
        events.swap("sent", first, first + 1)
    found = audited(events.table(), examples=1)
    assert found.counts() == {("out_of_order", "billing"): len(range(5, 29_990, 10))}


def test_an_audit_of_nothing_is_refused(audited: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one of them"):
        audit.check(defaults(audit.SETTINGS, topic="orders"))
    with pytest.raises(ConfigError, match="as 2026"):
        audit.check(defaults(audit.SETTINGS, topic="orders", trace="x", to="yesterday"))
    with pytest.raises(DataLost, match="nothing can be judged"):
        audited(healthy(10).table(), to="2020-01-01T00:00:00Z", **{"from": "2019-01-01T00:00:00Z"})


def test_offsets_of_the_archive_are_checked(
    audited: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """A hole, a row twice, and an id at two offsets, over several stripes."""
    events = healthy(100)
    rows = spark.range(0, 40_000).selectExpr(
        "'orders' AS topic", "0 AS partition", "id AS offset",
        "lower(lpad(hex(if(id = 20001, 20000, id) + (1L << 40)), 16, '0')) AS id",
        f"timestamp_micros({T0_US} + id) AS timestamp",
    )  # fmt: skip
    archive = tmp_path / "archive"
    kept = rows.where("offset NOT BETWEEN 16383 AND 16384")
    kept.union(rows.where("offset = 30000")).write.parquet(str(archive))
    found = audited(events.table(), archive=str(archive))
    counts = {(f["kind"], f["place"]): f["count"] for f in found.report["findings"]}
    places = {key: count for key, count in counts.items() if key[1] == "the archive"}
    assert {kind: count for (kind, _), count in places.items()} == {
        "gap": 2,
        "repeated_offset": 1,
        "same_id": 1,
    }
    assert found.offsets("gap") == [16_385]
    assert found.report["coverage"]["messages"] == 39_999
