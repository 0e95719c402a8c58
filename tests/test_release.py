"""The workflow that makes a release, and the versions that it was tested with."""

import re
import shlex
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from environments import requirements, uv

ROOT = Path(__file__).parents[1]
PATH = ROOT / ".github" / "workflows" / "release.yml"
WORKFLOW = yaml.safe_load(PATH.read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MADE = ("dist/", "wheelhouse/", "files/", "files")  # while it runs


def steps(job: str) -> list[dict[str, Any]]:
    return list(JOBS[job]["steps"])


def commands(job: str) -> str:
    return "\n".join(step["run"] for step in steps(job) if "run" in step)


def lost_paths(words: list[str]) -> list[str]:
    paths = [one for one in words if re.fullmatch(r"[\w.-]*[\w-]/[\w./-]+|[\w-]+\.(toml|md)", one)]
    return [one for one in paths if not one.startswith(MADE) and not (ROOT / one).exists()]


def test_github_understands_it() -> None:
    uv("tool", "run", "check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(PATH))


def test_files_that_it_calls_exist() -> None:
    for job in JOBS:
        assert lost_paths(shlex.split(commands(job), comments=True)) == [], job
    assert lost_paths(["deploy/gone.txt", "deploy/Dockerfile"]) == ["deploy/gone.txt"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111  # it is called as a program
    tried = PROJECT["tool"]["cibuildwheel"]["test-command"].split("{project}/")[1]
    assert (ROOT / tried).is_file()


def test_nothing_is_attached_or_published_before_all_is_well() -> None:
    assert set(JOBS["attach"]["needs"]) == JOBS.keys() - {"attach", "publish"}
    assert JOBS["publish"]["needs"] == ["attach"]
    assert all("if" not in job and "continue-on-error" not in job for job in JOBS.values())


def test_only_the_approved_job_may_publish() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    allowed = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert allowed == {"attach": {"contents": "write"}, "publish": {"id-token": "write"}}
    assert [name for name, job in JOBS.items() if "environment" in job] == ["publish"]
    assert "secrets." not in PATH.read_text()


def test_runners_build_for_every_machine() -> None:
    asked = defaultdict(set)
    for one in JOBS["wheels"]["strategy"]["matrix"]["include"]:
        asked[one["runner"].partition("-")[0]].update(one["archs"].split())
    build = PROJECT["tool"]["cibuildwheel"]
    assert asked["ubuntu"] == set(build["linux"]["archs"])
    assert asked["macos"] == set(build["macos"]["archs"])


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "penstock" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == PROJECT["project"]["version"]


def test_constraints_have_a_version_of_everything_that_is_asked_for() -> None:
    lines = (ROOT / "deploy" / "constraints.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    for one in map(
        Requirement, requirements("auth", "admin", "sql", "spark", "cluster", "formats")
    ):
        versions = [pin.specifier for pin in pinned if pin.name == one.name]
        assert versions, one
        for version in versions:
            (exact,) = version
            assert exact.operator == "=="
            assert one.specifier.contains(exact.version), one
