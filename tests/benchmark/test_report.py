"""Medians, ratios and remarks of a report."""

from __future__ import annotations

from bench.passes import Measure, percentiles
from bench.report import Row, document, table
from bench.scenarios import BY_NAME


def rows() -> list[Row]:
    own = Row(BY_NAME["mpub"], 200, "penstock-os")
    own.measures = [Measure(1000, s, 200_000, {"p50": s}, 4_000, 2_000) for s in (1.0, 4.0, 2.0)]
    peer = Row(BY_NAME["mpub"], 200, "nsqd", [Measure(1000, 8.0, 1_000_000, {}, 9_000, 8_000)])
    return [own, peer, Row(BY_NAME["mpub"], 200, "nats-os"), Row(BY_NAME["mpub"], 200, "odd")]


def test_the_median_round_counts_and_the_first_daemon_is_the_measure() -> None:
    own, peer, _, _ = document(rows(), {})["results"]
    assert own["messages_per_second"] == 500
    assert own["cpu_seconds_per_million"] == 0.2
    assert own["latency_us"] == {"p50": 2.0}
    assert own["all_rates"] == [1000, 250, 500]
    assert peer["rate_ratio"] == 0.25
    assert peer["cpu_ratio"] == 5


def test_blank_rows_and_failures_say_so() -> None:
    found = rows()
    found[3].failure = "it lost a message"
    text = table(found).splitlines()
    assert len(text) == 5
    assert text[3].endswith("not possible with this protocol")
    assert text[4].endswith("FAILED: it lost a message")
    assert document(found, {})["results"][3]["failure"] == "it lost a message"


def test_a_starved_daemon_is_marked() -> None:
    row = rows()[0]
    row.measures = [Measure(1000, 1.0, 200_000, waited_ns=400_000_000)]
    assert "waited for its core 40% of the time" in table([row])
    row.measures = [Measure(1000, 1.0, 200_000, waited_ns=10_000_000)]
    assert "waited" not in table([row])


def test_percentiles_are_taken_by_rank() -> None:
    latencies = [microsecond * 1000 for microsecond in range(1000, 0, -1)]
    assert percentiles(latencies) == {"p50": 501.0, "p99": 991.0, "p99.9": 1000.0}
    assert percentiles([]) == {}
