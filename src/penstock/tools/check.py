"""`penstock check`: one line and an exit code, as monitoring systems of Nagios' kind read them.

0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (the command line is wrong). A node that does not answer, a
health that is not OK, a topic that refuses publishes and damaged data are always critical; depth
and its like have bounds that the caller gives.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.errors import ConfigError, PenstockError
from penstock.tools import nodes
from penstock.tools.contexts import ContextTrouble
from penstock.tools.stats import Look, look
from penstock.tools.verbs import VerbParser, WrongUse, add_json, print_json

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

# Figures that may have bounds: option, field of the stats, how people call it.
BOUNDS = (
    ("depth", "depth", "waiting"),
    ("in-flight", "in_flight_count", "in flight"),
    ("delayed", "deferred_count", "delayed"),
)


class Finding(NamedTuple):
    level: int
    text: str


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock check",
        description="Is all well? Exit code 0: yes, 1: warning, 2: critical, 3: unknown (wrong "
        "use).",
        examples=["penstock check", "penstock check orders billing --depth-warn 1000 --json"],
    )
    parser.add_argument("topic", nargs="?", default="", metavar="TOPIC", help="only this one")
    parser.add_argument("channel", nargs="?", default="", metavar="CHANNEL", help="only this one")
    for option, _, called in BOUNDS:
        for level in ("warn", "crit"):
            parser.add_argument(
                f"--{option}-{level}",
                type=_bound,
                metavar="N",
                help=f"{WORDS[1 + (level == 'crit')].lower()} above this many {called} in a "
                "channel",
            )
    parser.add_argument("--consumers", type=_bound, metavar="N", help="critical below this many")
    add_json(parser)
    nodes.add_arguments(parser)
    return parser


def _bound(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number, 0 or more")
    return int(text)


def check_main(argv: Sequence[str]) -> int:
    try:
        arguments = parser().parse_args(list(argv))
    except SystemExit as leaving:
        return OK if leaving.code in (None, 0) else UNKNOWN
    try:
        now = look(nodes.nodes(arguments), arguments.topic, arguments.channel)
    except (ConfigError, ContextTrouble, WrongUse) as error:  # of us, not of the installation
        return tell([Finding(UNKNOWN, str(error))], arguments)
    except PenstockError as error:
        return tell([Finding(CRITICAL, str(error))], arguments)
    return tell(list(findings(now, arguments)), arguments)


def findings(now: Look, arguments: argparse.Namespace) -> Iterator[Finding]:
    yield from _about_nodes(now)
    if arguments.topic and not now.rows and now.documents:
        yield Finding(CRITICAL, f"no topic {arguments.topic} {arguments.channel}".rstrip())
    for (topic, channel), row in sorted(now.rows.items()):
        if not channel:
            continue
        for option, field, called in BOUNDS:
            name = option.replace("-", "_")
            critical = getattr(arguments, f"{name}_crit")
            warning = getattr(arguments, f"{name}_warn")
            count = row[field]
            most = _most(now, topic, channel, field)
            text = f"{topic}/{channel}: {count} {called}{most}"
            if critical is not None and count > critical:
                yield Finding(CRITICAL, f"{text}, above {critical}")
            elif warning is not None and count > warning:
                yield Finding(WARNING, f"{text}, above {warning}")
        wanted = arguments.consumers
        if wanted is not None and row["client_count"] < wanted:
            has = f"{row['client_count']} consumers, below {wanted}"
            yield Finding(CRITICAL, f"{topic}/{channel}: {has}")


def _about_nodes(now: Look) -> Iterator[Finding]:
    for address, reason in now.failures.items():
        yield Finding(CRITICAL, f"{address}: {reason}")
    for address, document in now.documents.items():
        if document["health"] != "OK":
            level = WARNING if document["health"].startswith("OK") else CRITICAL
            yield Finding(level, f"{address}: {document['health']}")
        for topic in document["topics"] or ():
            name = f"{address}: topic {topic['topic_name']}"
            if topic.get("refusal"):
                yield Finding(CRITICAL, f"{name} refuses publishes: {topic['refusal']}")
            if topic.get("damaged"):
                yield Finding(CRITICAL, f"{name} has damaged data")
            for part in topic.get("partitions", ()):
                if part["refusal"] and not topic.get("refusal"):
                    refuses = f"{name} refuses publishes in partition {part['partition']}"
                    yield Finding(CRITICAL, f"{refuses}: {part['refusal']}")


def _most(now: Look, topic: str, channel: str, field: str) -> str:
    """ " (36 in partition 1)", where there are several: the one that has most."""
    parts = [
        part
        for document in now.documents.values()
        for row in document["topics"] or ()
        if row["topic_name"] == topic
        for below in row["channels"]
        if below["channel_name"] == channel
        for part in below.get("partitions", ())
    ]
    most = max(parts, key=lambda part: int(part[field]), default=None)
    return f" ({most[field]} in partition {most['partition']})" if most else ""


def tell(found: list[Finding], arguments: argparse.Namespace) -> int:
    level = max((finding.level for finding in found), default=OK)
    if arguments.json:
        rows = [{"level": WORDS[finding.level], "text": finding.text} for finding in found]
        print_json({"status": WORDS[level], "findings": rows})
        return level
    found.sort(key=lambda finding: -finding.level)
    texts = "; ".join(finding.text for finding in found)
    print(f"PENSTOCK {WORDS[level]}" + (f" - {texts}" if texts else ""))
    return level
