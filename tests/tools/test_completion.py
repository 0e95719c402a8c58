from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.tools.completion import all_words, bash, zsh
from penstock.tools.main import VERBS


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "penstock"
    path.write_text(bash(all_words()))
    return path


def completed(script: Path, *words: str, topics: str = "") -> list[str]:
    """What bash offers at the end of these words; `penstock topic list` says `topics`."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"penstock() {{ echo '{topics}'; }}; source '{script}'; COMP_WORDS=({quoted}); "
        f"COMP_CWORD={len(words) - 1}; _penstock; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs(script: Path) -> None:
    assert completed(script, "penstock", "") == list(VERBS)
    assert completed(script, "penstock", "cha") == ["channel"]


def test_verbs_below_and_their_options(script: Path) -> None:
    assert completed(script, "penstock", "topic", "un") == ["unpause"]
    assert "--yes" in completed(script, "penstock", "channel", "delete", "--")
    assert "--yes" not in completed(script, "penstock", "channel", "pause", "--")
    assert completed(script, "penstock", "completion", "z") == ["zsh"]


def test_the_flags_of_a_daemon(script: Path) -> None:
    assert "--data-path" in completed(script, "penstock", "nsqd", "--data")


def test_names_come_from_the_daemon(script: Path) -> None:
    assert completed(script, "penstock", "pub", "o", topics="orders pay") == ["orders"]
    assert completed(script, "penstock", "topic", "pause", "p", topics="orders pay") == ["pay"]


def test_zsh_names_every_verb() -> None:
    text = zsh(all_words())
    assert text.startswith("#compdef penstock\n")
    for verb in VERBS:
        assert f"    {verb}/*) found=" in text
