"""Medians over the rounds, ratios to the first daemon, as a table for people and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.passes import Measure
from bench.scenarios import Scenario

HEAD = (
    "scenario", "bytes", "daemon", "messages/s", "CPU s/M", "busy", "p50 us", "p99 us", "p99.9 us",
    "RSS MB", "gen.", "rate x", "CPU x", "",
)  # fmt: skip
STARVED_SHARE_MAX = 0.2  # beyond this other work on the machine has shaped the rate
LEFT = (0, 2, 13)  # columns of words


@dataclass(slots=True)
class Row:
    """All rounds of one scenario, body size and daemon."""

    scenario: Scenario
    body_bytes: int
    daemon: str
    measures: list[Measure] = field(default_factory=list)
    failure: str = ""

    def middle(self, name: str) -> float:
        return median(float(getattr(measure, name)) for measure in self.measures)

    def latency(self, name: str) -> float | None:
        found = [m.latency_us[name] for m in self.measures if name in m.latency_us]
        return median(found) if found else None

    def extra(self) -> dict[str, float]:
        names = self.measures[0].extra if self.measures else {}
        return {name: median(m.extra[name] for m in self.measures) for name in names}


def ratio(own: float, first: float) -> float | None:
    return own / first if own and first else None


def figures(row: Row, first: Row) -> dict[str, Any]:
    """One row as plain values; a daemon that cannot do the scenario has none."""
    found: dict[str, Any] = {
        "scenario": row.scenario.name,
        "about": row.scenario.about,
        "body_bytes": row.body_bytes,
        "daemon": row.daemon,
        "rounds": len(row.measures),
    }
    if row.failure:
        found["failure"] = row.failure
    if row.failure or not row.measures:
        return found
    found |= {
        "messages": row.middle("messages"),
        "messages_per_second": row.middle("rate"),
        "cpu_seconds_per_million": row.middle("cpu_seconds_per_million"),
        "busy": row.middle("busy"),
        "generator_busy": row.middle("generator_busy"),
        "starved": row.middle("starved"),
        "rss_kb": row.middle("rss_kb"),
        "anonymous_kb": row.middle("anonymous_kb"),
        "latency_us": {p: row.latency(p) for p in ("p50", "p99", "p99.9") if row.latency(p)},
        "all_rates": [round(m.rate, 1) for m in row.measures],
        "all_cpu_seconds_per_million": [round(m.cpu_seconds_per_million, 4) for m in row.measures],
    }
    found |= row.extra()
    if first.measures:
        found["rate_ratio"] = ratio(row.middle("rate"), first.middle("rate"))
        own, base = (r.middle("cpu_seconds_per_million") for r in (row, first))
        found["cpu_ratio"] = ratio(own, base)
    return found


def beside(rows: Sequence[Row], row: Row) -> dict[str, Any]:
    """What it costs more than the scenario beside it, on the same daemon in the same run."""
    plain = [
        r
        for r in rows
        if (r.scenario.name, r.body_bytes, r.daemon)
        == (row.scenario.beside, row.body_bytes, row.daemon)
    ]
    if not (plain and plain[0].measures and row.measures):
        return {}
    own, other = (r.middle("cpu_seconds_per_million") for r in (row, plain[0]))
    return {"beside": row.scenario.beside, "beside_cpu_ratio": ratio(own, other)}


def described(rows: Sequence[Row], row: Row) -> dict[str, Any]:
    return figures(row, first_of(rows, row)) | beside(rows, row)


def first_of(rows: Sequence[Row], row: Row) -> Row:
    """The row that the ratios of `row` refer to: the same scenario on the first daemon."""
    same = [r for r in rows if (r.scenario, r.body_bytes) == (row.scenario, row.body_bytes)]
    return same[0]


def number(value: float | None) -> str:
    """Three figures that matter, thousands apart."""
    if not value:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def share(value: float | None) -> str:
    return f"{value:.0%}" if value else "-"


def remark(found: dict[str, Any]) -> str:
    if "failure" in found:
        return f"FAILED: {found['failure']}"
    if "rss_kb" not in found:
        return "not possible with this protocol"
    if "ready_seconds" in found:
        first = found.get("first_message_seconds", 0.0)
        text = f"ready in {found['ready_seconds']:.2f} s, first message in {first:.2f} s, "
        return f"{text}lost {found['lost']:,.0f} of {found['published']:,.0f}"
    if "queued" in found:
        anonymous, base = found["anonymous_kb"] / 1000, found["base_rss_kb"] / 1000
        return f"{found['queued']:,.0f} queued, anonymous {anonymous:.0f} MB, empty {base:.0f} MB"
    remarks = []
    if found.get("beside_cpu_ratio"):
        remarks.append(f"{found['beside_cpu_ratio']:.2f} x the CPU of {found['beside']}")
    if found["starved"] > STARVED_SHARE_MAX:
        waited = min(1.0, found["starved"])
        remarks.append(f"waited for its core {waited:.0%} of the time")
    return ", ".join(remarks)


def cells(found: dict[str, Any]) -> tuple[str, ...]:
    latency = found.get("latency_us", {})
    return (
        found["scenario"],
        str(found["body_bytes"]),
        found["daemon"],
        number(found.get("messages_per_second")),
        number(found.get("cpu_seconds_per_million")),
        share(found.get("busy")),
        *(number(latency.get(p)) for p in ("p50", "p99", "p99.9")),
        number(found.get("rss_kb", 0) / 1000),
        share(found.get("generator_busy")),
        number(found.get("rate_ratio")),
        number(found.get("cpu_ratio")),
        remark(found),
    )


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, *(cells(described(rows, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def document(rows: Sequence[Row], machine: dict[str, Any]) -> dict[str, Any]:
    return {"machine": machine, "results": [described(rows, row) for row in rows]}
