"""In embedded mode a task that fails is tried again, as on a cluster: Spark's own `local[*]` gives
up at the first failure, and with it a pipeline would end at every hiccup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark import quickjvm

from .command import WAIT_S_MAX


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_task_is_tried_four_times(java: None, tmp_path: Path) -> None:
    job = Path(__file__).with_name("retryjob.py")
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path), quickjvm.options()],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "master": "local[*,4]",
        "raises once": [10, 2],
        "dies once": [10, 2],
        "raises always": [-1, 4],
    }
