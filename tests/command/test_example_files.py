"""docs/<daemon>.toml names every key of its daemon, and says of each what its default is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cases import each
from penstock.command.flags import Effect, Flag, resolve
from penstock.nsqadmin.options import FLAGS as NSQADMIN
from penstock.nsqd.options import FLAGS as NSQD
from penstock.nsqlookupd.options import FLAGS as NSQLOOKUPD

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMAND_LINE_ONLY = {"version", "config"}
KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


@each(
    ("program", "flags", "from_the_host"),  # of the latter the file shows an example
    [
        ("nsqd", NSQD, {"id", "broadcast_address"}),
        ("nsqlookupd", NSQLOOKUPD, {"broadcast_address"}),
        ("nsqadmin", NSQADMIN, set()),
    ],
)
def test_the_example_has_every_key_with_its_default(
    tmp_path: Path, program: str, flags: Sequence[Flag], from_the_host: set[str]
) -> None:
    lines = KEY.findall((DOCS / f"{program}.toml").read_text())
    keys = [line.split(" = ")[0] for line in lines]
    wanted = {flag.file_key for flag in flags} - COMMAND_LINE_ONLY
    assert len(keys) == len(set(keys))
    assert set(keys) == wanted
    uncommented = tmp_path / "example.toml"
    uncommented.write_text("\n".join(lines))
    given = resolve(flags, [f"--config={uncommented}"], {}).explicit
    for flag in flags:
        if flag.file_key in wanted - from_the_host:
            found = given[flag.name]
            assert (tuple(found) if isinstance(found, list) else found) == flag.default, flag.name


def test_the_example_of_nsqd_says_what_has_no_effect() -> None:
    head, later = re.split(r"^## Accepted.*$", (DOCS / "nsqd.toml").read_text(), flags=re.M)
    for flag in NSQD:
        if flag.file_key not in COMMAND_LINE_ONLY | {"verbose"}:
            part = {Effect.NOW: head, Effect.LATER: later}[flag.effect]
            assert f"# {flag.file_key} = " in part
