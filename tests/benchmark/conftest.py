"""The generator is compiled; without a compiler there is no benchmark to test."""

import importlib.util
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.daemon import Contender, nsq_peer

FAKE = Path(__file__).with_name("fake_daemon.py")

if importlib.util.find_spec("bench.load") is None:
    collect_ignore = ["test_load.py", "test_bench.py", "test_report.py"]


@pytest.fixture
def fake_command() -> Callable[[str], str]:
    """The command line of a daemon that misbehaves as asked."""
    words = [sys.executable, str(FAKE), "--tcp={tcp}", "--http={http}"]
    return lambda fault: shlex.join([*words, f"--fault={fault}"])


@pytest.fixture
def fake(fake_command: Callable[[str], str]) -> Callable[[str], Contender]:
    return lambda fault: nsq_peer("fake", fake_command(fault))
