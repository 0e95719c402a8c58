"""The archive's batches by the real delta-spark. Its jars are on Maven alone; a package of PyPI has
those of Delta 4.0 in it, for Spark 4.0, which our source does not run on: so the sink alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipelines import delta_sink

PACKAGES = ("jsoniq==3.0.2", "deltalake", "duckdb", "msgspec", "prometheus_client", "pyarrow")
SCRIPT = Path(__file__).with_name("delta_spark_writes.py")


@pytest.mark.long
@pytest.mark.timeout(1800)  # half a gigabyte comes over the network
def test_a_catalogs_table_has_each_batch_once(tmp_path: Path) -> None:
    python, sources = tmp_path / "venv/bin/python", Path(delta_sink.__file__).parents[2]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    (jar,) = (tmp_path / "venv").rglob("rumbledb-*.jar")
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYSPARK_PYTHON": str(python)}
    command = [python, SCRIPT, tmp_path, jar]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE
    )
    (elsewhere, again), *found = json.loads(done.stdout.splitlines()[-1])
    assert "it is file:" in elsewhere
    assert "it was deleted and made again" in again
    assert found == [list(range(10)), 1, ["one"]]
