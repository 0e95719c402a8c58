"""`make sim`: play histories of replication, and look at one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.replica.safeguards import ALL
from sim.brokers.histories import BROKERS
from sim.brokers.timeline import brokers_timeline
from sim.protocol.histories import Found, Tally
from sim.protocol.histories import play_many as protocol_many
from sim.protocol.switches import SWITCHES, Switch
from sim.protocol.timeline import timeline as protocol_timeline
from sim.timeline import Timeline, as_html, as_text
from sim.whole.histories import CLOCKED, WALK, WholeTally
from sim.whole.histories import play_many as whole_many
from sim.whole.timeline import clocked_timeline
from sim.whole.timeline import timeline as walk_timeline

EPILOG = """examples:
  python -m sim --histories 100000
  python -m sim --seed 4711
  python -m sim --world whole --histories 100
  python -m sim --seed 12 --without crc_compared --html history.html

A history is a walk at random through publishes, faults of disks, links and the coordinator, with
every promise checked after each event; in the whole world it is played on a clock. The same seed
is the same history everywhere. --without takes a rule away, so that one can see what it is for.
Exit code 1: a promise was broken."""
FOUND_SHOWN_MAX = 20  # of a block
HISTORIES = 20_000
WHOLE_HISTORIES = 100
WALK_HISTORIES = 500
BROKERS_HISTORIES = 50


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: at least 1")
    return value


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m sim",
        description="Simulate replication, and check its promises.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--world", choices=tuple(WORLDS), default="protocol",
                   help="protocol: the machines of replication over model logs; whole: real logs,"
                   " roles, kernel and offices on simulated disks and a clock; walk: the same"
                   " without offices: the dice decide; brokers: whole brokers"
                   " with clients")  # fmt: skip
    p.add_argument("--histories", type=positive, metavar="N",
                   help=f"how many to play ({HISTORIES}; whole: {WHOLE_HISTORIES}; walk:"
                   f" {WALK_HISTORIES}; brokers: {BROKERS_HISTORIES})")  # fmt: skip
    p.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    p.add_argument("--processes", type=positive, metavar="N", help="one for each core")
    p.add_argument("--seed", type=int, metavar="SEED", help="play one, and show it")
    p.add_argument("--without", choices=ALL._fields, metavar="RULE",
                   help="with --seed: take it away; one of " + ", ".join(ALL._fields))  # fmt: skip
    p.add_argument("--json", action="store_true", help="figures, or a history, as one document")
    p.add_argument("--html", type=Path, metavar="FILE", help="with --seed: write it as a page")
    return p


def sim_main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    world = WORLDS[arguments.world]
    if arguments.seed is None:
        if arguments.without or arguments.html:
            parser().error("--without and --html need --seed")
        return _play(arguments, world)
    if world is not PROTOCOL and arguments.without:
        parser().error("--without is for the protocol world: only there a rule can be taken away")
    if world is not PROTOCOL:
        return _show(arguments, world.timeline(arguments.seed))
    off = arguments.without
    switch = next((one for one in SWITCHES if one.off == off), Switch(off or "", 1))
    guards = switch.guards() if off else ALL
    one = protocol_timeline(arguments.seed, guards, switch.reckless, switch.focus)
    return _show(arguments, one)


def _show(arguments: argparse.Namespace, one: Timeline) -> int:
    if arguments.html is not None:
        arguments.html.write_text(as_html(one))
        print(f"{arguments.html}: seed {one.seed}, {one.breach or 'everything held'}")
    elif arguments.json:
        moments = [moment._asdict() for moment in one.moments]
        print(json.dumps({**one._asdict(), "moments": moments}))
    else:
        print(as_text(one))
    return 1 if one.breach else 0


class _World(NamedTuple):
    """Whose histories are played."""

    histories: int  # unless it is said how many
    play_many: Callable[[int, int, int], Iterator[Any]]  # blocks: tally, found, cpu_seconds
    nothing: Any  # the tally before the first
    happened: str  # a sentence over a tally's figures
    timeline: Callable[[int], Timeline]


PROTOCOL = _World(
    HISTORIES,
    protocol_many,
    Tally(),
    "{committed:,} publishes answered OK, {offices:,} offices begun, {growths:,} sets grown, "
    "{shrinks:,} shrunk, {cuts:,} logs cut",
    protocol_timeline,
)
WHOLE = _World(
    WHOLE_HISTORIES,
    partial(whole_many, kind=CLOCKED),
    WholeTally(),
    "{answered:,} messages answered OK, {offices:,} offices begun, {growths:,} sets grown, "
    "{shrinks:,} shrunk, {cuts:,} logs cut",
    clocked_timeline,
)
WALK_WORLD = WHOLE._replace(
    histories=WALK_HISTORIES, play_many=partial(whole_many, kind=WALK), timeline=walk_timeline
)
BROKERS_WORLD = WHOLE._replace(
    histories=BROKERS_HISTORIES,
    play_many=partial(whole_many, kind=BROKERS),
    happened="{answered:,} messages answered OK, {offices:,} offices begun, {growths:,} sets "
    "grown, {shrinks:,} shrunk",
    timeline=brokers_timeline,
)
WORLDS = {
    "protocol": PROTOCOL,
    "whole": WHOLE,
    "walk": WALK_WORLD,
    "brokers": BROKERS_WORLD,
}


def _play(arguments: argparse.Namespace, world: _World) -> int:
    begun = time.monotonic()
    histories = arguments.histories or world.histories
    tally, cpu_seconds = world.nothing, 0.0
    found: list[Found] = []
    for block in world.play_many(arguments.first, histories, arguments.processes or 0):
        tally = tally.plus(block.tally)
        cpu_seconds += block.cpu_seconds
        found += block.found
        for one in () if arguments.json else block.found[:FOUND_SHOWN_MAX]:
            print(f"seed {one.seed}: {one.text}")
        done = tally.histories + len(found)
        if sys.stderr.isatty():
            print(f"\r{done:,} of {histories:,}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    figures = tally._asdict()
    if arguments.json:
        broken = [one._asdict() for one in found]
        print(json.dumps({**figures, "cpu_seconds": cpu_seconds, "broken": broken}))
    else:
        seconds = time.monotonic() - begun
        pace = done / cpu_seconds
        print(f"{done:,} histories in {seconds:.0f} s, {pace:,.0f} a second and core")
        print(world.happened.format_map(figures))
        print(f"broken promises: {len(found):,}")
    return 1 if found else 0
