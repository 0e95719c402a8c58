"""The check of coverage finds a core below its floor, names where, and lets floors only rise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parent.parent / ".ci" / "check_coverage.py"


def report_of(taken: int) -> str:
    summary = {"num_statements": 80, "num_branches": 20, "covered_lines": taken - 10}
    files = {
        "src/penstock/log/mark.py": {"summary": {**summary, "covered_branches": 10}},
        "src/penstock/nsqd/main.py": {"summary": {"num_statements": 9, "covered_lines": 0}},
    }
    return json.dumps({"files": files})


@pytest.fixture
def check(tmp_path: Path) -> Path:
    """A copy with floors of its own."""
    (tmp_path / "coverage_floors.json").write_text('{"log": 90.0}')
    return Path((tmp_path / "check_coverage.py").write_text(CHECK.read_text()) and tmp_path)


def run(path: Path, taken: int, *options: str) -> subprocess.CompletedProcess[str]:
    report = path / "report.json"
    report.write_text(report_of(taken))
    command = [sys.executable, str(path / "check_coverage.py"), str(report), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_at_its_floor_below_it_and_above(check: Path) -> None:
    done = run(check, 90)
    assert (done.returncode, done.stdout, done.stderr) == (0, "branch coverage: log 90.0 %\n", "")
    done = run(check, 89, "--raise")
    assert done.returncode == 1
    assert done.stderr == "log: 89.0 % is below its floor of 90.0 %: see mark.py (89.0 %)\n"
    assert json.loads((check / "coverage_floors.json").read_text()) == {"log": 90.0}
    assert run(check, 97, "--raise").returncode == 0
    assert json.loads((check / "coverage_floors.json").read_text()) == {"log": 97.0}
    assert run(check, 96).returncode == 1
    (check / "coverage_floors.json").write_text('{"gone": 1.0}')  # it was not measured
    assert "gone: 0.0 % is below" in run(check, 97).stderr


def test_all_cores_have_a_floor() -> None:
    floors = json.loads(CHECK.with_name("coverage_floors.json").read_text())
    assert set(floors) == {"kernel", "wire", "ids", "log", "broker", "takeover"}
    assert all(floor >= 90 for floor in floors.values())
