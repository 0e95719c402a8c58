"""docs/nsqd.toml names every key, and says of each what its default is."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.command.flags import Effect, resolve
from penstock.nsqd.options import FLAGS

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "nsqd.toml"
FROM_THE_HOST = {"id", "broadcast_address"}  # the file shows an example of these
COMMAND_LINE_ONLY = {"version", "config"}
KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    lines = KEY.findall(EXAMPLE.read_text())
    keys = [line.split(" = ")[0] for line in lines]
    wanted = {flag.file_key for flag in FLAGS} - COMMAND_LINE_ONLY
    assert len(keys) == len(set(keys))
    assert set(keys) == wanted
    uncommented = tmp_path / "nsqd.toml"
    uncommented.write_text("\n".join(lines))
    resolved = resolve(FLAGS, [f"--config={uncommented}"], {})
    for flag in FLAGS:
        if flag.file_key in wanted - FROM_THE_HOST:
            assert resolved.explicit[flag.name] == flag.default, flag.file_key


def test_the_example_says_what_has_no_effect() -> None:
    head, later = re.split(r"^## Accepted.*$", EXAMPLE.read_text(), flags=re.M)
    for flag in FLAGS:
        if flag.file_key in COMMAND_LINE_ONLY | {"verbose"}:
            continue
        part = {Effect.NOW: head, Effect.LATER: later}[flag.effect]
        assert f"# {flag.file_key} = " in part
