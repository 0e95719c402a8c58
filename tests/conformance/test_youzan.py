"""The tables of docs/conformance.md about Youzan's NSQ: what they say is here is in the code."""

import re
from pathlib import Path

import pytest

from penstock.nsqd.options import FLAGS
from penstock.wire.errors import Fault
from penstock.wire.states import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "penstock"
STATES = ("done", "differs", "cluster", "no")
SECTION = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
HERE = "\n## Youzan's NSQ, verb by verb\n"


def rows() -> list[tuple[str, str, str]]:
    """Section, first cell and state."""
    _, found, text = (ROOT / "docs" / "conformance.md").read_text().partition(HERE)
    assert found
    listed = []
    for title, body in SECTION.findall(text + "\n## end"):
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| ") and len(cells) == 3 and cells[1]:
                listed.append((title, cells[0], cells[1]))
    return listed


def named(cell: str) -> list[str]:
    return [word.split()[0] for word in re.findall(r"`([^`]+)`", cell)]


def text_of(folder: str) -> str:
    return "".join(path.read_text() for path in sorted((SOURCES / folder).rglob("*.py")))


def is_here(section: str, name: str) -> bool:
    if name.startswith("--"):
        return name[2:] in {flag.name for flag in FLAGS}
    if section == "Commands":
        return name.encode() in COMMANDS
    if section == "Errors":
        codes = {fault.code.decode() for fault in Fault}
        return name in codes or f'"{name}"' in text_of("nsqd")
    folders = ["nsqd", "net"] if section.startswith("nsqd") else ["nsqlookupd", "nsqd", "nsqadmin"]
    text = "".join(map(text_of, folders))
    return f'"{name}"' in text or f'b"{name}"' in text or f'"{name}' in text


@pytest.mark.parametrize("section", ["Commands", "Errors", "nsqd over HTTP", "nsqlookupd"])
def test_claimed_features_are_in_the_code(section: str) -> None:
    claimed = [
        name
        for title, cell, state in rows()
        if title == section and state in ("done", "differs")
        for name in named(cell)
        if name.startswith(("/", "--")) or name.isupper()
    ]
    assert len(claimed) > 5
    assert [name for name in claimed if not is_here(section, name)] == []


def test_missing_commands_and_codes_are_marked() -> None:
    denied = [
        name
        for title, cell, state in rows()
        if title in ("Commands", "Errors") and state in ("no", "cluster")
        for name in named(cell)
    ]
    assert denied
    assert [name for name in denied if name.encode() in COMMANDS] == []
    codes = {fault.code.decode() for fault in Fault}
    assert [name for name in denied if name in codes] == []


def test_every_row_has_a_state() -> None:
    assert {state for _, _, state in rows()} <= set(STATES)


def test_the_check_finds_a_claim_that_is_false() -> None:
    assert not is_here("Commands", "SUB_NOWHERE")
    assert not is_here("nsqd over HTTP", "/channel/nowhere")
    assert not is_here("Errors", "E_NOWHERE")
