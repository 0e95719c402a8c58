"""Every console script and every extra in an environment of its own, without `dev`: what is
documented works with what it installs, or says what to install."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cases import each
from e2e.daemon import Daemon
from environments import PROJECT, ROOT, Venv, requirements, uv

MODULES = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


class Environment:
    """The packages of the core and of some extras, and the sources beside them."""

    def __init__(self, path: Path, *extras: str) -> None:
        self._venv = Venv(path)
        self._venv.install(*requirements(*extras))

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Python with these arguments."""
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME") if key in os.environ}
        return subprocess.run(
            [self._venv.python, *arguments], input=stdin, text=True, capture_output=True,
            timeout=250, env=kept | {"PYTHONPATH": str(ROOT / "src")}, cwd=ROOT.parent, check=False,
        )  # fmt: skip

    def packages(self) -> set[str]:
        listed = uv("pip", "list", "--format=json", "--python", self._venv.python).stdout
        return {one["name"] for one in json.loads(listed)}

    def script(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        module, function = PROJECT["scripts"][name].split(":")
        code = f"import sys; from {module} import {function}; sys.exit({function}())"
        return self.run("-c", code, *arguments)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core") / "venv")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("cli") / "venv", "cli")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("admin") / "venv", "admin", "sql")


@each("name", [name for name in PROJECT["scripts"] if name != "penstock"])
def test_a_script_needs_the_core_only(core: Environment, name: str) -> None:
    done = core.script(name, "--help")
    assert (done.returncode, "Traceback" in done.stderr, bool(done.stdout + done.stderr)) == (
        0, False, True,
    ), done  # fmt: skip


def test_the_core_brings_these_and_nothing_else(core: Environment) -> None:
    """Who only has a client should not have to install much."""
    assert core.packages() == {"cramjam", "httptools", "msgspec", "uvloop"}


def test_penstock_runs_the_daemons_and_says_what_its_verbs_need(core: Environment) -> None:
    assert core.script("penstock", "--version").stdout.startswith("penstock ")
    assert "-data-path" in core.script("penstock", "nsqd", "--help").stdout
    for words in ((), ("--help",), ("stats",)):
        done = core.script("penstock", *words)
        assert done.returncode == 1
        assert done.stderr.startswith("penstock needs the extra `cli`: install it with pip ")
        assert len(done.stderr.splitlines()) == 1


def test_every_verb_says_what_it_does_or_needs(cli: Environment) -> None:
    from penstock.tools.main import VERBS

    for verb in VERBS:
        done = cli.script("penstock", verb, "--help")
        assert done.returncode == 0 or "needs the extra `" in done.stderr, (verb, done)


@each(
    ("words", "message"),
    [
        (("nsqadmin", "-nsqd-http-address=127.0.0.1:1"), "needs the extra `admin`"),
        (("penstock", "sql", "SELECT 1"), "needs the extra `sql`"),
        (("nsqd", "--auth-http-address=127.0.0.1:1", "--data-path=/nowhere"),
         "failed to start nsqd - --auth-http-address needs the extra `auth`: install it with"),
    ],
)  # fmt: skip
def test_a_missing_extra_is_named(cli: Environment, words: tuple[str, ...], message: str) -> None:
    done = cli.script(*words)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@each(("extra", "module"), [("otel", "penstock.client.otel"), ("formats", "penstock.formats")])
def test_a_module_without_its_extra_says_so(core: Environment, extra: str, module: str) -> None:
    done = core.run("-c", f"import penstock.client, {module}")
    assert f"ImportError: {module} needs the extra `{extra}`" in done.stderr


def test_the_sql_console_reads_topics(admin: Environment, tmp_path: Path) -> None:
    with Daemon(tmp_path / "nsqd") as nsqd:
        nsqd.post("/pub?topic=orders", b"seen")
        nodes = [f"127.0.0.1:{nsqd.http_port}"]
        question = {"sql": "SELECT body FROM orders", "nodes": nodes, "lakes": []}
        done = admin.run("-m", "penstock.nsqadmin.console", stdin=json.dumps(question))
    assert (done.stderr, json.loads(done.stdout)["error"]) == ("", "")
    assert json.loads(done.stdout)["rows"] == [["seen"]]


def test_every_module_of_nsqadmin(admin: Environment) -> None:
    done = admin.run("-c", MODULES, "penstock.nsqadmin")
    assert (done.returncode, done.stderr) == (0, "")


@each(
    ("extra", "packages"),
    [
        ("spark", ("penstock.spark", "penstock.pipelines", "pyspark_penstock")),
        ("cluster", ("penstock.cluster", "penstock.net")),
        ("otel", ("penstock.client",)),
        ("formats", ("penstock.formats",)),
    ],
)
def test_every_module_of_an_extra(extra: str, packages: tuple[str, ...], tmp_path: Path) -> None:
    done = Environment(tmp_path / extra, extra).run("-c", MODULES, *packages)
    assert (done.returncode, done.stderr) == (0, "")
