"""Java starts whatever the archive of classes is, and says nothing of it on its standard output."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from . import quickjvm


@pytest.mark.parametrize("held", [None, b"", b"no archive" * 1000])
def test_an_archive_that_is_no_good_harms_nothing(
    java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bytes | None
) -> None:
    classes = tmp_path / "classes.jsa"
    monkeypatch.setenv("PENSTOCK_TEST_JAVA_CLASSES", str(classes))
    if held is not None:
        classes.write_bytes(held)
    words = shlex.split(quickjvm.options())
    assert any(str(classes) in word for word in words) is (held is not None)
    done = subprocess.run(["java", *words, "-version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_half_made_is_taken_away(
    java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_JAVA_CLASSES", "")
    with quickjvm.keep_classes(tmp_path):
        assert quickjvm.options() == quickjvm.PLAIN
    assert list(tmp_path.iterdir()) == []
