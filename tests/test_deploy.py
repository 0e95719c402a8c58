"""What an installation copies: the units parse, and name what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_knows_every_line(unit: Path, tmp_path: Path) -> None:
    """`verify` wants the executable to be there: one that is stands in for ours."""
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_configuration_it_names_has_an_example(unit: Path) -> None:
    name = re.search(r"--config=/etc/penstock/(\S+)", unit.read_text())
    assert name is not None
    assert (ROOT / "docs" / name[1]).is_file()


def test_the_image_copies_what_is_there() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert copied
    for words in copied:
        for name in words.split():
            assert (ROOT / name).exists(), name
