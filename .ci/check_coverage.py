"""Hold the branch coverage of each core against its floor: `check_coverage.py REPORT [--raise]`.

REPORT is what `coverage json` writes. The floors stand in coverage_floors.json beside this file, in
percent of lines and branches. They only rise: `--raise` writes what was reached where it is more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

FLOORS = Path(__file__).with_name("coverage_floors.json")
NAMED_MAX = 5  # files with most that no test takes


class Total(NamedTuple):
    possible: int
    taken: int

    @property
    def percent(self) -> float:
        """Cut, not rounded: 94.99 is not 95."""
        return int(self.taken * 1000 / self.possible) / 10 if self.possible else 100.0


def total_of(summary: dict[str, int]) -> Total:
    possible = summary["num_statements"] + summary.get("num_branches", 0)
    return Total(possible, summary["covered_lines"] + summary.get("covered_branches", 0))


def of_package(files: dict[str, Total], package: str) -> dict[str, Total]:
    start = f"src/penstock/{package}/"
    return {path: total for path, total in files.items() if start in path.replace("\\", "/")}


def reached(files: dict[str, Total]) -> Total:
    return Total(
        sum(one.possible for one in files.values()), sum(one.taken for one in files.values())
    )


def judge(files: dict[str, Total], floors: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """What each package reached, and a complaint for each that is below its floor."""
    found: dict[str, float] = {}
    complaints = []
    for package, floor in floors.items():
        own = of_package(files, package)
        found[package] = percent = reached(own).percent if own else 0.0
        if percent >= floor:
            continue
        least = sorted(own, key=lambda path: own[path].taken - own[path].possible)[:NAMED_MAX]
        shown = ", ".join(f"{Path(one).name} ({own[one].percent} %)" for one in least)
        complaints.append(f"{package}: {percent} % is below its floor of {floor} %: see {shown}")
    return found, complaints


def main() -> int:
    report = json.loads(Path(sys.argv[1]).read_text())
    floors: dict[str, float] = json.loads(FLOORS.read_text())
    files = {path: total_of(one["summary"]) for path, one in report["files"].items()}
    found, complaints = judge(files, floors)
    print("branch coverage:", ", ".join(f"{name} {found[name]} %" for name in found))
    if "--raise" in sys.argv:
        raised = {name: max(floor, found[name]) for name, floor in floors.items()}
        FLOORS.write_text(json.dumps(raised, indent=2) + "\n")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
