"""`make sim`: play histories of replication, and look at one."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.brokers.histories import BROKERS
from sim.brokers.timeline import brokers_timeline
from sim.histories import Found, Kind, Tally, play_many
from sim.protocol.histories import PROTOCOL
from sim.protocol.timeline import timeline as protocol_timeline
from sim.timeline import Timeline, as_html, as_text

EPILOG = """examples:
  python -m sim --histories 100000
  python -m sim --seed 4711
  python -m sim --world brokers --histories 50
  python -m sim --world brokers --seed 6 --html history.html

A history is trouble at random, with every promise checked. The same seed is the same history
everywhere. Exit code 1: a promise was broken."""
FOUND_SHOWN_MAX = 20  # of a block


class World(NamedTuple):
    """Whose histories are played."""

    kind: Kind
    histories: int  # unless it is said how many
    happened: str  # a sentence over a tally's figures
    timeline: Callable[[int], Timeline]


_LEADERSHIPS = "{leaderships:,} leaderships begun, {growths:,} sets grown, {shrinks:,} shrunk"
WORLDS = {
    "protocol": World(
        PROTOCOL,
        20_000,
        "{answered:,} publishes answered OK, " + _LEADERSHIPS + ", {cuts:,} logs cut",
        protocol_timeline,
    ),
    "brokers": World(
        BROKERS, 50, "{answered:,} messages answered OK, " + _LEADERSHIPS, brokers_timeline
    ),
}


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
                   help="protocol: the machines of replication over model logs, without a clock;"
                   " brokers: whole brokers with clients, on a clock")  # fmt: skip
    counts = "; ".join(f"{name}: {world.histories:,}" for name, world in WORLDS.items())
    p.add_argument("--histories", type=positive, metavar="N", help=f"how many to play ({counts})")
    p.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    p.add_argument("--processes", type=positive, metavar="N", help="one for each core")
    p.add_argument("--seed", type=int, metavar="SEED", help="play one, and show it")
    p.add_argument("--json", action="store_true", help="figures, or a history, as one document")
    p.add_argument("--html", type=Path, metavar="FILE", help="with --seed: write it as a page")
    return p


def sim_main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    world = WORLDS[arguments.world]
    if arguments.seed is not None:
        return _show(arguments, world.timeline(arguments.seed))
    if arguments.html:
        parser().error("--html needs --seed")
    return _play(arguments, world)


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


def _play(arguments: argparse.Namespace, world: World) -> int:
    begun = time.monotonic()
    histories = arguments.histories or world.histories
    tally, cpu_seconds = Tally(), 0.0
    found: list[Found] = []
    for block in play_many(world.kind, arguments.first, histories, arguments.processes or 0):
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
