"""Exit codes, as docs/tools.md lists them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.tools.main import VERBS, main
from penstock.tools.nsq_stat import main as nsq_stat
from penstock.tools.nsq_tail import main as nsq_tail
from penstock.tools.nsq_to_file import main as nsq_to_file
from penstock.tools.nsq_to_http import main as nsq_to_http
from penstock.tools.nsq_to_nsq import main as nsq_to_nsq
from penstock.tools.to_nsq import main as to_nsq

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
UTILITIES = (nsq_stat, nsq_tail, nsq_to_file, nsq_to_http, nsq_to_nsq, to_nsq)
NOBODY = "--nsqd-http-address=127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def code_of(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as leaving:  # of argparse, in the benchmarks
        return int(str(leaving.code or 0))


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_flag(verb: str) -> None:
    assert code_of([verb, "--nix"]) == (3 if verb == "check" else 2)
    assert code_of([verb, "--help"]) == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"stats {NOBODY}", 1),
        (f"stats {NOBODY} --lookupd-http-address=127.0.0.1:1", 2),
        ("stats --context=nix", 1),
        (f"topic delete t {NOBODY}", 1),  # not confirmed
        (f"topic config t x {NOBODY}", 2),
        (f"channel redrive t c --count=-1 {NOBODY}", 2),
        ("context select", 2),
        ("trace", 2),
        ("pipeline example nix", 2),
        ("migrate /nix", 2),
        ("log verify /nix", 2),
        ("log dump /nix", 2),
        ("bundle analyze /nix", 3),
        ("bundle gather --nix", 2),
        (f"check {NOBODY}", 2),  # critical
        (f"check {NOBODY} --lookupd-http-address=127.0.0.1:1", 3),
        ("check --context=nix", 3),
        (f"check {NOBODY} --http-secret-file=/nix", 3),
    ],
)
def test_what_is_wrong(line: str, code: int) -> None:
    assert code_of(line.split()) == code


def test_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADRESS", "127.0.0.1:1")
    assert main(["stats"]) == 2
    assert main(["bundle", "gather"]) == 2
    assert main(["check"]) == 3
    assert main(["bundle", "analyze", "x"]) == 3


@pytest.mark.parametrize("utility", UTILITIES)
def test_an_nsq_utility_has_one_code(utility: object) -> None:
    assert callable(utility)
    assert utility(["--nix"]) == utility([]) == 1
    assert utility(["--help"]) == 0


def test_a_daemon_and_a_value_that_is_not_valid() -> None:
    command = [sys.executable, "-m", "penstock.tools.main", "nsqd"]
    for flag, code in (("--nix", 2), ("--max-deflate-level=99", 1)):
        assert subprocess.run([*command, flag], capture_output=True, check=False).returncode == code


def test_the_document_lists_them() -> None:
    text = DOCUMENT.read_text()
    assert re.findall(r"^\| (\d+) \| ", text, re.MULTILINE) == ["0", "1", "2", "130"]
