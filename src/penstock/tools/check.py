"""`penstock check`: one line and an exit code, as monitoring systems of Nagios' kind read them.

0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (the command line is wrong). A node that does not answer, a
health that is not OK, a topic that refuses publishes and damaged data are always critical; a
cluster that lacks a node or a replica is a warning while it takes all publishes. Depth and its like
have bounds that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

from penstock.command.terminal import span
from penstock.errors import ConfigError, PenstockError
from penstock.nsqadmin import replication
from penstock.tools.app import OnlyChannel, OnlyTopic, app, opt, verb
from penstock.tools.connection import Http, Options
from penstock.tools.contexts import ContextTrouble
from penstock.tools.output import Output, Row, WrongUse
from penstock.tools.reports import document, look

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

# Figures that may have bounds: field of the stats, how people call it.
_BOUNDED = {
    "depth": ("depth", "waiting"),
    "in_flight": ("in_flight_count", "in flight"),
    "delayed": ("deferred_count", "delayed"),
}
Bound = int | None
_SHOWN_MAX = 20  # findings of the line, which monitoring cuts at some kilobytes


class Finding(NamedTuple):
    level: int
    text: str
    since_seconds: float = 0.0  # 0: it is not known since when
    do: str = ""  # about it

    def line(self) -> str:
        since = f", since {span(self.since_seconds)}" if self.since_seconds else ""
        return f"{self.text}{since}" + (f". {self.do}" if self.do else "")


class Bounds(Options):
    depth_warn: Annotated[Bound, opt("N", "warning above so much waiting", min=0)] = None
    depth_crit: Annotated[Bound, opt("N", "critical above so much waiting", min=0)] = None
    in_flight_warn: Annotated[Bound, opt("N", "warning above so much in flight", min=0)] = None
    in_flight_crit: Annotated[Bound, opt("N", "critical above so much in flight", min=0)] = None
    delayed_warn: Annotated[Bound, opt("N", "warning above so much delayed", min=0)] = None
    delayed_crit: Annotated[Bound, opt("N", "critical above so much delayed", min=0)] = None
    consumers: Annotated[Bound, opt("N", "critical below this many", min=0)] = None


@verb(app, "check", "check orders billing --depth-warn 1000 --json")
def check(at: Http, bounds: Bounds, topic: OnlyTopic = "", channel: OnlyChannel = "") -> Output:
    """Check health. Exit code 0: well, 1: warning, 2: critical, 3: unknown (wrong use)."""

    def found() -> Iterator[Finding]:
        nodes = at.nodes()
        clusters = at.clusters(nodes)
        now = look([*nodes, *at.others(clusters).values()], topic, channel)
        yield from _about_nodes(now)
        yield from _about_clusters(clusters.values())
        topics = document(now)["topics"]
        if topic and not topics and any(not node.error for node in now.nodes.values()):
            yield Finding(CRITICAL, f"no topic {topic} {channel}".rstrip())
        for name, row in topics.items():
            for below, of in row["channels"].items():
                yield from _about_channel(f"{name}/{below}", of, vars(bounds))

    return verdict(found)


def verdict(judge: Callable[[], Iterable[Finding]]) -> Output:
    try:
        found = list(judge())
    except (ConfigError, ContextTrouble, WrongUse) as error:  # of us, not of the installation
        found = [Finding(UNKNOWN, str(error))]
    except PenstockError as error:
        found = [Finding(CRITICAL, str(error))]
    level = max((one.level for one in found), default=OK)
    rows = [{"level": WORDS[one.level], "text": one.line()} for one in found]
    texts = [one.line() for one in sorted(found, key=lambda one: -one.level)[:_SHOWN_MAX]]
    texts += [f"{len(found) - _SHOWN_MAX:,} more"] if len(found) > _SHOWN_MAX else []
    line = f"PENSTOCK {WORDS[level]}" + (f" - {'; '.join(texts)}" if texts else "")
    return Output({"status": WORDS[level], "findings": rows}, [line], level)


def _about_channel(name: str, row: Row, bounds: Mapping[str, int | None]) -> Iterator[Finding]:
    for bound, (field, called) in _BOUNDED.items():
        critical, warning = bounds[f"{bound}_crit"], bounds[f"{bound}_warn"]
        text = f"{name}: {row[field]} {called}{_most(row, field)}"
        if critical is not None and row[field] > critical:
            yield Finding(CRITICAL, f"{text}, above {critical}")
        elif warning is not None and row[field] > warning:
            yield Finding(WARNING, f"{text}, above {warning}")
    wanted = bounds["consumers"]
    if wanted is not None and row["client_count"] < wanted:
        has = f"{row['client_count']} consumers, below {wanted}"
        yield Finding(CRITICAL, f"{name}: {has}")


def _about_nodes(now: Snapshot) -> Iterator[Finding]:
    for address, node in now.nodes.items():
        if node.error:
            yield Finding(CRITICAL, f"{address}: {node.error}")
        elif node.health != "OK":
            level = WARNING if node.health.startswith("OK") else CRITICAL
            yield Finding(level, f"{address}: {node.health}")
        for topic in node.document.get("topics") or ():
            name = f"{address}: topic {topic['topic_name']}"
            if topic.get("refusal"):
                yield Finding(CRITICAL, f"{name} refuses publishes: {topic['refusal']}")
            if topic.get("damaged"):
                yield Finding(CRITICAL, f"{name} has damaged data")
            for part in topic.get("partitions", ()):
                if part["refusal"] and not topic.get("refusal"):
                    refuses = f"{name} refuses publishes in partition {part['partition']}"
                    yield Finding(CRITICAL, f"{refuses}: {part['refusal']}")


def _about_clusters(answers: Iterable[Row]) -> Iterator[Finding]:
    """A node that is down does not tell: the others of its cluster do."""
    for answer in {one["cluster"]["uuid"]: one for one in answers}.values():
        found = replication.read(answer)
        if found.trouble:
            refuses = any(one.offline or one.blocked for one in found.partitions)
            do = "See penstock cluster status"
            yield Finding(CRITICAL if refuses else WARNING, found.trouble.rstrip("."), 0, do)


def _most(row: Row, field: str) -> str:
    """ " (36 in partition 1)", where there are several: the one with most."""
    most = max(row.get("partitions", ()), key=lambda part: int(part[field]), default=None)
    return f" ({most[field]} in partition {most['partition']})" if most else ""
