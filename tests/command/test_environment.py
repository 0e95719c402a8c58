"""Which variables are ours, and which are somebody's mistake."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cases import each
from penstock.command import extras
from penstock.command.environment import (
    COMMAND_LINE,
    PIPELINES,
    check_names,
    check_near_misses,
    of_daemons,
)
from penstock.command.flags import Flag
from penstock.errors import ConfigError
from penstock.nsqadmin import options as nsqadmin
from penstock.nsqd import options as nsqd
from penstock.nsqlookupd import options as nsqlookupd
from penstock.pipelines import runner

FLAGS: tuple[Flag, ...] = (*nsqd.FLAGS, *nsqlookupd.FLAGS, *nsqadmin.FLAGS)
OWN = {f"PENSTOCK_{flag.file_key.upper()}" for flag in nsqd.FLAGS}
KUBERNETES = {
    "PENSTOCK_SERVICE_HOST": "10.0.0.1",
    "PENSTOCK_SERVICE_PORT": "4150",
    "PENSTOCK_SERVICE_PORT_HTTP": "4151",
    "PENSTOCK_PORT": "tcp://10.0.0.1:4150",
    "PENSTOCK_PORT_4150_TCP": "tcp://10.0.0.1:4150",
    "PENSTOCK_PORT_4150_TCP_ADDR": "10.0.0.1",
    "PENSTOCK_NSQD_SERVICE_HOST": "10.0.0.2",
    "PENSTOCK_NSQD_PORT": "tcp://10.0.0.2:4150",
}


def test_the_names_are_those_of_the_programs() -> None:
    assert {f"PENSTOCK_{flag.file_key.upper()}" for flag in FLAGS} == of_daemons()
    assert set(PIPELINES) == set(runner.PIPELINES)


@each(
    "name",
    [
        "PENSTOCK_TCP_ADDRESS",
        "PENSTOCK_NSQLOOKUPD_HTTP_ADDRESSES",  # nsqadmin's
        "PENSTOCK_CONTEXT",
        "PENSTOCK_TEST_ROUNDS",
        "PENSTOCK_BUILD",
        "PENSTOCK_ARCHIVE_TABLE",
        "PENSTOCK_TRACE_URL",
        "NSQD_TLS_REQUIRD",
    ],
)
def test_known_names(name: str) -> None:
    check_names(OWN, {name: "x"})


@each(
    ("name", "near"),
    [
        ("PENSTOCK_TLS_REQUIRD", "PENSTOCK_TLS_REQUIRED"),
        ("PENSTOCK_AUTH_HTTP_ADRESSES", "PENSTOCK_AUTH_HTTP_ADDRESSES"),
        ("PENSTOCK_AUTH_HTTP_ADDRESS", "PENSTOCK_AUTH_HTTP_ADDRESSES"),
        ("PENSTOCK_TRACE_RAT", "PENSTOCK_TRACE_RATE"),  # no variable of the pipeline `trace`
        ("PENSTOCK_BROADCAST_TPC_PORT", "PENSTOCK_BROADCAST_TCP_PORT"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*; the nearest is {near}$"):
        check_names(OWN, {name: "true"})


def test_the_command_line_refuses_only_what_is_nearly_its_own() -> None:
    check_near_misses(COMMAND_LINE, {"PENSTOCK_MY_SECRET": "x", "PENSTOCK_CONTEXT": "y"})
    check_near_misses(COMMAND_LINE, KUBERNETES)
    with pytest.raises(ConfigError, match=r"the nearest is PENSTOCK_NSQD_HTTP_ADDRESS$"):
        check_near_misses(COMMAND_LINE, {"PENSTOCK_NSQD_HTTP_ADRESS": "a:1"})


# --- a package of an extra is missing: an install that exists is named ---


ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_package_is_in_its_extra() -> None:
    declared = PROJECT["optional-dependencies"]
    for extra, packages in extras._EXTRAS.items():
        listed = " ".join(declared[extra]).replace("-", "_")
        for package in packages:
            assert package in listed or package == "starlette"  # comes with fastapi


def test_modules_of_an_extra() -> None:
    assert extras.extra_of(ModuleNotFoundError(name="pyspark.sql")) == "spark"
    assert extras.extra_of(ModuleNotFoundError(name="penstock.nonsense")) == ""


def without(package: str, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`penstock` in a Python that has everything but one package."""
    (tmp_path / package).mkdir()
    text = f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n"
    (tmp_path / package / "__init__.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "penstock.tools.main", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
    )


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("duckdb", ("sql", "select 1", "--url=127.0.0.1:1"), "sql"),
        ("pyspark", ("pipeline", "run", "archive", "--table=x"), "spark"),
        ("pyspark", ("pipeline", "list"), "spark"),
        ("nicegui", ("nsqadmin", "-nsqd-http-address=127.0.0.1:1"), "admin"),
    ],
)
def test_a_verb_without_its_extra_says_what_to_install(
    tmp_path: Path, package: str, words: tuple[str, ...], extra: str
) -> None:
    done = without(package, tmp_path, *words)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"needs the extra `{extra}`: install it with pip install '.[{extra}]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# --- standard streams ---

PROGRAM = """
import sys
from types import SimpleNamespace
from penstock.command import run, scripts

async def main() -> int:
    print("said to whom?", sys.stdin.read())
    return 0

scripts.import_module = lambda _: SimpleNamespace(main=lambda: run.run(main))
sys.exit(scripts.nsqd())
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_fault(closed: str) -> None:
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", PROGRAM]
    assert subprocess.run(line, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("words", ["penstock --help", "penstock id 18a2000000001000", "nsqd -help"])
def test_whoever_reads_the_output_may_leave(words: str) -> None:
    program, *arguments = words.split()
    code = f"import sys; from penstock.command import scripts; sys.exit(scripts.{program}())"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as unread:
        line = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(line, stdout=unread, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
