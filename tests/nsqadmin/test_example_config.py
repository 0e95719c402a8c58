"""docs/nsqadmin.toml names every key, and says of each what its default is."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.command.flags import resolve
from penstock.nsqadmin.options import FLAGS

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "nsqadmin.toml"
COMMAND_LINE_ONLY = {"version", "config"}
KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    lines = KEY.findall(EXAMPLE.read_text())
    keys = [line.split(" = ")[0] for line in lines]
    assert len(keys) == len(set(keys))
    assert set(keys) == {flag.file_key for flag in FLAGS} - COMMAND_LINE_ONLY
    uncommented = tmp_path / "nsqadmin.toml"
    uncommented.write_text("\n".join(lines))
    given = resolve(FLAGS, [f"--config={uncommented}"], {}).explicit
    for flag in FLAGS:
        if flag.file_key not in COMMAND_LINE_ONLY:
            found = given[flag.name]
            assert (tuple(found) if isinstance(found, list) else found) == flag.default, flag.name
