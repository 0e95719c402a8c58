"""`examples/dbt` and `examples/airflow`, with dbt and Airflow themselves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from e2e.daemon import Daemon
from environments import Venv

from . import test_notebook
from .test_notebook import archived

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = (b'{"user": "anna", "total": 1.5}', b'{"user": "ben", "total": "2.25"}', b"\xff")
# The tasks of the DAG as JSON, with other places in its variables.
TASKS = """
import json, sys
from pathlib import Path
file, *places = sys.argv[1:]
text = Path(file).read_text()
for old, new in zip(places[::2], places[1::2]):
    assert old in text, old
    text = text.replace(old, new)
found = {}
exec(compile(text, file, "exec"), found)
tasks = found["orders"]().tasks
print(json.dumps({t.task_id: [t.bash_command, t.env, [*t.downstream_task_ids]] for t in tasks}))
"""


@pytest.fixture(scope="module")
def dbt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = Venv(tmp_path_factory.mktemp("dbt") / "venv")
    # 1.12 gets a part of itself from GitHub while it is installed
    venv.install("dbt-core>=1.10,<1.12", "dbt-duckdb>=1.10", "deltalake>=1,<2", "pyarrow>=18")
    return Path(venv.python).with_name("dbt")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {
        "DBT_LOG_PATH": str(tmp_path / "logs"),
        "DBT_TARGET_PATH": str(tmp_path / "target"),
        "PENSTOCK_DUCKDB": str(tmp_path / "orders.duckdb"),
        "DBT_USE_COLORS": "false",
    }


def build(dbt: Path, table: Path, environment: dict[str, str]) -> str:
    command = [dbt, "build", "--project-dir", EXAMPLES / "dbt", "--profiles-dir", EXAMPLES / "dbt"]
    done = subprocess.run(
        command, env=environment | {"PENSTOCK_TABLE": str(table)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def hours(environment: dict[str, str]) -> list[tuple[Any, ...]]:
    with duckdb.connect(environment["PENSTOCK_DUCKDB"], read_only=True) as connection:
        return connection.sql("SELECT orders, customers, total FROM orders_by_hour").fetchall()


def test_models_of_an_archive(
    dbt: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_notebook, "BODIES", ORDERS)
    archived(tmp_path / "whole", [0, 1, 2])
    for _ in range(2):  # the second one has a table to add to
        assert "PASS=10 WARN=0 ERROR=0" in build(dbt, tmp_path / "whole", environment)
        ((orders, customers, total),) = hours(environment)
        assert (orders, customers, float(total)) == (2, 2, 3.75)
    archived(tmp_path / "holed", [0, 1, 4])
    assert "FAIL 1 offsets_are_dense" in build(dbt, tmp_path / "holed", environment)


def test_the_tasks_of_the_dag(
    java: None, dbt: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    airflow = Venv(tmp_path / "airflow")
    airflow.install("apache-airflow-core>=3,<4", "apache-airflow-providers-standard>=1,<2")
    with Daemon(tmp_path / "data") as daemon:
        daemon.post("/topic/create?topic=orders")
        for body in ORDERS:
            daemon.post("/pub?topic=orders", body)
        places = {
            "127.0.0.1:4151": f"127.0.0.1:{daemon.http_port}",
            "/data/lake": str(tmp_path),
            "/opt/penstock/bin/penstock": f"{sys.executable} -m penstock.tools.main",
            "/opt/dbt/bin/dbt": str(dbt),
            "/opt/penstock/examples/dbt": str(EXAMPLES / "dbt"),
        }
        listed = subprocess.run(
            [airflow.python, "-c", TASKS, EXAMPLES / "airflow" / "orders.py",
             *(text for pair in places.items() for text in pair)],
            env=environment | {"AIRFLOW_HOME": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
        tasks = json.loads(listed.stdout.splitlines()[-1])
        assert {name: set(task[2]) for name, task in tasks.items()} == {
            "archive": {"check", "dbt"}, "check": set(), "dbt": set(),
        }  # fmt: skip
        for name in ("archive", "check", "dbt"):
            command, more, _ = tasks[name]
            run = subprocess.run(
                ["bash", "-c", command], env=environment | (more or {}), capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            assert run.returncode == 0, run.stdout + run.stderr
    ((orders, customers, total),) = hours(environment)
    assert (orders, customers, float(total)) == (2, 2, 3.75)
