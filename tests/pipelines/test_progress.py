import io
import json
from typing import Any

import pytest

from cases import each
from command.test_terminal import Tty
from penstock.errors import FetchFailed
from penstock.pipelines.outages import cause_line, is_crash
from penstock.pipelines.progress import Progress
from penstock.pipelines.runs import Report
from penstock.pipelines.streams import Watch
from penstock.spark.lag import lag_rows


def test_plain_lines_come_now_and_then_and_the_last_always() -> None:
    out = io.StringIO()
    progress = Progress("archive", 3600, out)
    for rows in (1, 2, 3):
        progress.report(Report(rows, 5.0, lag_rows=4, lag_seconds=1.25, left_seconds=61))
    progress.console.end()
    assert out.getvalue().splitlines() == [
        "archive: 1 rows, 5 rows/s, 4 behind, lag 1.2 s, 1m01s left",
        "archive: 3 rows, 5 rows/s, 4 behind, lag 1.2 s, 1m01s left",
    ]


def test_up_to_date_says_when() -> None:
    report = Report(7, 5.0, lag_rows=0, lag_seconds=29.9)
    assert report.line() == "7 rows, 5 rows/s, up to date 29.9 s ago"


def test_a_terminal_has_one_line_that_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Tty()
    progress = Progress("archive", 3600, out)
    progress.report(Report(1, total=10), final=True)
    progress.report(Report(10, total=10, lag_rows=0), final=True)
    progress.say("hello")
    progress.console.fail("broken")
    progress.console.end()
    assert out.getvalue() == (
        "\r\x1b[Karchive: 1 of 10 rows, 0 rows/s"
        "\r\x1b[Karchive: 10 of 10 rows, 0 rows/s, up to date"
        "\r\x1b[Karchive: hello\nbroken\n"
    )


def test_json_has_one_object_a_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    progress = Progress("archive", 3600, err, out)
    progress.say("hello")
    progress.report(Report(7, 2.0, lag_rows=0))
    progress.report(Report(8, 2.0, lag_rows=0))  # not shown yet
    progress.console.fail("broken")
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["pipeline"] for row in rows] == ["archive"] * 4
    assert [row.get("rows") for row in rows] == [None, 7, 8, None]
    assert (rows[0]["event"], rows[3]["error"]) == ("hello", "broken")
    assert err.getvalue() == "broken\n"


def offset(**ends: int) -> str:
    topics = {name: {"identity": "i", "partitions": {"0": end}} for name, end in ends.items()}
    return json.dumps({"topics": topics, "version": 1})


def batch(second: int, number: int, rows: int, end: int, latest: int) -> dict[str, Any]:
    return {
        "timestamp": f"1970-01-01T00:00:{second:02d}.000Z",
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 500},
        "sources": [{"endOffset": offset(a=end), "latestOffset": offset(a=latest)}],
    }


def test_figures_of_batches() -> None:
    watch = Watch()
    assert watch.report(0.0) == Report(0)
    recent = [batch(10, 0, 100, 100, 300)]
    watch.take(recent)
    watch.take(recent)  # it is shown until the next one
    assert watch.report(11.0) == Report(100, 200.0, lag_rows=200, left_seconds=1.0)
    watch.take([*recent, batch(11, 1, 200, 300, 300)])
    assert watch.report(12.5) == Report(300, 200.0, lag_rows=0, lag_seconds=1.5)
    recent = [batch(11, 1, 200, 300, 300), batch(14, 2, 0, 300, 300)]
    watch.take(recent)
    assert (watch.batches, watch.report(14.5).lag_seconds) == (2, 0.5)
    assert (watch.batch, watch.committed_s, watch.logs) == (1, 11.5, {("a", 0): (300, 300)})
    watch.take([*recent, batch(5, 3, 100, 400, 400)])  # by a clock that was set back
    assert watch.report(5.5) == Report(400, 200.0, lag_rows=0, lag_seconds=0.5)


def test_lag_is_summed_over_topics_and_new_ones_count_whole() -> None:
    assert lag_rows([{"endOffset": offset(a=5), "latestOffset": offset(a=7, b=10)}]) == 12
    assert lag_rows([{"endOffset": offset(a=5), "latestOffset": None}]) is None
    assert lag_rows([{"endOffset": "7", "latestOffset": "9"}]) is None


SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Traceback (most recent call last):
  File "source.py", line 3, in _read
{last}

\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
"""


@each(
    ("text", "line"),
    [
        (
            SPARK.format(last="penstock.errors.DataLost: topic a partition 0: gone"),
            "topic a partition 0: gone",
        ),
        (
            SPARK.format(last="ModuleNotFoundError: No module named 'penstock'"),
            "ModuleNotFoundError: No module named 'penstock'",
        ),
        (
            "An error occurred while calling o1.start.\n: org.apache.spark.SparkException: Ouch\n"
            "\tat org.apache.spark.A.b(A.scala:1)",
            "Exception: Ouch",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: requirement "
            "failed: penstock_delta does not support Update mode. SQLSTATE: XXKST",
            "requirement failed: penstock_delta does not support Update mode.",
        ),
        ("", "Exception"),
        ("x" * 9000, "Exception: " + "x" * 486 + "..."),
    ],
)
def test_one_line_of_what_spark_throws(text: str, line: str) -> None:
    assert cause_line(Exception(text)) == line


def test_crashes_that_may_pass() -> None:
    assert is_crash(Exception("[STREAM_FAILED] Python worker exited unexpectedly (crashed)."))
    assert is_crash(Exception("[STREAM_FAILED] Query [id = 1] terminated: Stream closed"))
    assert is_crash(Exception("[STREAM_FAILED] SQLSTATE: XXKST (no cause message)"))
    assert not is_crash(FetchFailed("http://a/log/fetch", "Connection reset by peer"))
    assert not is_crash(ValueError("no"))
