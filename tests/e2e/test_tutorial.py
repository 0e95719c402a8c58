"""docs/tutorial.md runs as pasted: its blocks in one shell, and what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALLS = re.compile(r"^(make run|UV=|\$UV|export PATH).*\n", re.MULTILINE)
# The tutorial's ports are the default ones: a network of its own has them free.
ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
SHELL = ["sh", "-c", 'ip link set lo up && exec bash -c "$1"', "sh"]


@pytest.mark.long
def test_blocks_run_as_pasted(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = INSTALLS.sub("", "".join(block for kind, block in blocks if not kind))
    done = subprocess.run(
        [*ALONE, *SHELL, script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=True,
    )
    for line in (
        "127.0.0.1:4151: create topic orders: done",
        "dead_letter_topic = orders.billing.dead",
        "100 orders have their OK: each is on disk",
        "mail: order 25 done",
        "billing: order 77 failed, attempt 3",
        "127.0.0.1:4151: 3 redriven",
        "127.0.0.1:4151: offset 0, 103 come again",
        "node 2: killed",
        "acknowledged and not delivered: 0",
    ):
        assert line in done.stdout
    for pattern in (
        r"offset 2  attempts 3  requeued",
        r"orders/billing +0 +0 +0 ",
        r"18\w+ \{\"number\": 100, \"customer\": \"c2\", \"cents\": 10000\}",
        r"c2 +15 +765\.0",
        r"acknowledged [\d,]+   on their way \d+   lost 0 ",
    ):
        assert re.search(pattern, done.stdout), pattern
