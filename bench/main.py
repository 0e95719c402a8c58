"""`make bench`: fresh daemons, interleaved rounds, medians."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any

from bench import machine
from bench.daemon import Contender, nats_peer, nsq_peer, penstock
from bench.dialect import DaemonFailed
from bench.scenarios import BY_NAME, SCENARIOS, Plan
from bench.secure import FORMS, encoded

BODY_BYTES_MIN = 16
BODY_BYTES_MAX = 262_144
DISK_FREE_BYTES_MIN = 8_000_000_000
STDOUT = Path("-")
EPILOG = """examples:
  python -m bench --quick
  python -m bench --scenario mpub --scenario consume --durability both
  python -m bench --peer nats
  python -m bench --nodes 3 --scenario mpub --durability both
  python -m bench --scenario mpub --scenario consume --form tls --form snappy
  python -m bench --peer 'nsqd=nsqd --tcp-address={tcp} --http-address={http} --data-path={data}'

The first daemon of the table is the one that ratios refer to. `rate x` above 1 is faster than it,
`CPU x` above 1 costs more than it. `busy` is the share of a core that the daemon
used: near 100 % it was the limit, far below it waited for disk or for the generator."""


def body_size(text: str) -> int:
    value = int(text)
    if not BODY_BYTES_MIN <= value <= BODY_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"{BODY_BYTES_MIN} to {BODY_BYTES_MAX} bytes")
    return value


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Penstock, and other daemons beside it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(BY_NAME)
    p.add_argument("--scenario", action="append", choices=list(BY_NAME), metavar="NAME",
                   help=f"one of {names}; may be given several times; all by default")  # fmt: skip
    p.add_argument("--size", action="append", type=body_size, metavar="BYTES",
                   help="body size, may be given several times (200 and 1024)")  # fmt: skip
    p.add_argument("--rounds", type=positive, help="rounds, the median counts (5; quick: 1)")
    p.add_argument("--durability", choices=("disk", "os", "both"), default="os",
                   help="when Penstock answers OK: after fdatasync or after write")  # fmt: skip
    p.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND",
                   help="an NSQ daemon to measure beside it; {tcp} {http} {data} are filled in; "
                   "`nats` alone is NATS JetStream with file storage")  # fmt: skip
    p.add_argument("--nodes", type=positive, default=1, metavar="N",
                   help="a cluster of so many nodes beside it, with as many replicas: direct, and "
                   "with publishes at a node that hands them on")  # fmt: skip
    p.add_argument("--form", action="append", default=[], choices=FORMS, metavar="FORM",
                   help=f"measure Penstock with such clients too: {', '.join(FORMS)}; a relay in a "
                   "process of its own encodes for the generator")  # fmt: skip
    p.add_argument("--json", type=Path, metavar="FILE", nargs="?", const=STDOUT,
                   help="print JSON instead of a table; with FILE write it there too")  # fmt: skip
    p.add_argument("--data-dir", type=Path, help="where the daemons' data goes (temporary files)")
    p.add_argument("--restart-mb", type=positive, help="log size of `restart` (1024; quick: 16)")
    p.add_argument("--quick", action="store_true", help="a twentieth of the messages, one round")
    p.add_argument("--no-penstock", action="store_true", help="measure the peers only")
    return p


def contenders(options: argparse.Namespace, configs: Path) -> list[Contender]:
    modes = ("os", "disk") if options.durability == "both" else (options.durability,)
    found = [] if options.no_penstock else [penstock(mode) for mode in modes]
    found += [encoded(plain, form, configs) for plain in list(found) for form in options.form]
    if options.nodes > 1:
        from bench.cluster import clustered, nats_clustered

        found += [clustered(mode, options.nodes, on) for mode in modes for on in (False, True)]
    for peer in options.peer:
        name, equals, command = peer.partition("=")
        if peer == "nats":
            found += [nats_peer(mode, configs) for mode in modes]
            if options.nodes > 1:
                found += [nats_clustered(mode, configs, options.nodes) for mode in modes]
        elif equals and command:
            found.append(nsq_peer(name, command))
        else:
            raise DaemonFailed(f"--peer {peer}: expected NAME=COMMAND or nats")
    if not found:
        raise DaemonFailed("nothing to measure")
    return found


def warn_about(about: dict[str, Any], data: Path) -> None:
    if machine.busy(about["load_average"], about["cores"]):
        say(f"warning: the machine is busy (load {about['load_average']}): rates will wander")
    if not about["pinned"]:
        say("warning: one core only: daemon and generator share it, unpinned")
    if disk_usage(data).free < DISK_FREE_BYTES_MIN:
        say("warning: little free disk: large scenarios may not fit")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cases(options: argparse.Namespace) -> list[tuple[str, Plan]]:
    """(scenario, plan) for every scenario and size asked for."""
    sizes = options.size or [200, 1024]
    restart_mb = options.restart_mb or (16 if options.quick else 1024)
    wanted = options.scenario or [scenario.name for scenario in SCENARIOS]
    return [
        (name, Plan(size, options.quick, restart_mb))
        for name in wanted
        for size in (sizes if BY_NAME[name].measures_size else sizes[:1])
    ]


def measure_all(options: argparse.Namespace, daemons: list[Contender], data: Path) -> list[Any]:
    """Every case, its rounds interleaved over the daemons, there and back, since the one that comes
    second in a round finds another machine. A failure ends that daemon's case."""
    from bench import passes
    from bench.load import LoadFailed
    from bench.report import Row

    rounds = options.rounds or (1 if options.quick else 5)
    rows = []
    for name, plan in cases(options):
        scenario = BY_NAME[name]
        case = [Row(scenario, plan.body_bytes, daemon.name) for daemon in daemons]
        rows += case
        for number in range(rounds):
            turns = list(zip(case, daemons, strict=True))
            for row, daemon in reversed(turns) if number % 2 else turns:
                if row.failure:
                    continue
                say(f"{name}, {plan.body_bytes} bytes, {daemon.name}, round {number + 1}")
                data_path = data / "data"
                try:
                    measure = passes.run(scenario, plan, daemon, data_path)
                    row.measures += [measure] if measure else []
                except (LoadFailed, DaemonFailed, OSError) as error:
                    row.failure = str(error)
                    say(f"FAILED: {name} on {daemon.name}: {error}")
                finally:
                    rmtree(data_path, ignore_errors=True)
    return rows


def run(options: argparse.Namespace) -> int:
    from bench import report

    with ExitStack() as stack:
        parent = options.data_dir
        data = Path(stack.enter_context(tempfile.TemporaryDirectory("-bench", dir=parent)))
        about = machine.describe(data)
        warn_about(about, data)
        daemons = contenders(options, data)
        stack.enter_context(machine.pinned(machine.cores()[1]))
        rows = measure_all(options, daemons, data)
        document = json.dumps(report.document(rows, about), indent=2) + "\n"
        if options.json == STDOUT:
            sys.stdout.write(document)
        else:
            print(" ".join(f"{key}={value}" for key, value in about.items()))
            print(report.table(rows))
            if options.json:
                options.json.write_text(document)
        return 1 if any(row.failure for row in rows) else 0


def bench_main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    try:
        import bench.load  # noqa: F401
    except ImportError:
        say("the benchmark needs its compiled load generator: install a C compiler, `make build`")
        return 1
    try:
        return run(options)
    except DaemonFailed as error:
        say(f"error: {error}")
        return 1
