"""Spark as others run it: a standalone cluster with our wheel, and a Connect server."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from e2e.daemon import Daemon
from pipelines.node import Node, numbered

from . import cluster as clusters
from . import jobs
from .cluster import Cluster, Installed

pytestmark = pytest.mark.timeout(600)  # five Java machines on two cores
MESSAGES = 3000
JOBS = jobs.__file__
BOTH_WORKERS = {"spark.cores.max": "2"}


@pytest.fixture(scope="module")
def location(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def installed(location: Path) -> Installed:
    return clusters.install(location)


@pytest.fixture(scope="module")
def node(location: Path) -> Iterator[Node]:
    with Daemon(location / "nsqd") as daemon:
        node = Node(daemon)
        node.publish("orders", numbered(MESSAGES))
        yield node


@pytest.fixture(scope="module")
def cluster(installed: Installed, location: Path) -> Iterator[Cluster]:
    cluster = Cluster(installed, location)
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def entry(installed: Installed) -> str:
    ran = installed.run(str(installed.python), "-m", "penstock.pipelines", "--entry")
    return ran.checked().out.strip()


@pytest.fixture(scope="module")
def archived(
    installed: Installed, cluster: Cluster, node: Node, location: Path, entry: str
) -> Path:
    """The wheel is in the Python of the driver and of the workers."""
    table = location / "archive"
    words = (entry, "archive", "--url", node.url, "--topics", "orders", "--once")
    installed.submit(
        *words, "--table", str(table), master=cluster.master, conf=BOTH_WORKERS
    ).checked()
    return table


def test_the_wheel_holds_what_it_needs(installed: Installed, entry: str) -> None:
    assert Path(entry).is_relative_to(installed.python.parents[1])
    assert Path(entry).is_file()


def test_the_archive_runs_on_a_cluster(archived: Path) -> None:
    rows = DeltaTable(str(archived)).to_pyarrow_dataset()
    found = duckdb.sql('select count(*), count(distinct "offset"), min(body) from rows')
    assert found.fetchall() == [(MESSAGES, MESSAGES, b"0")]
    assert rows.count_rows() == MESSAGES


def test_a_batch_read_with_nothing_installed_but_by_py_files(
    installed: Installed, cluster: Cluster, node: Node, location: Path
) -> None:
    """A zip holds no compiled modules: batches are decoded in plain Python."""
    packed = location / "penstock.zip"
    shutil.copy(installed.wheel, packed)
    bare = clusters.bare_python(installed, location)
    ran = bare.submit(
        "--py-files", str(packed), JOBS, "batch", node.url, master=cluster.master, conf=BOTH_WORKERS
    ).checked()
    text: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    assert text["rows"] == MESSAGES
    assert all("penstock.zip" in task["file"] for task in text["tasks"])
    assert {task["kernel"] for task in text["tasks"]} == {"penstock.kernel.codec.hashes"}


def test_spark_connect_runs_batch_and_stream(
    installed: Installed, node: Node, location: Path
) -> None:
    with clusters.connect_server(installed, location) as server:
        words = ("connect", server.found, node.url, str(location / "connect"))
        text = json.loads(installed.run(str(installed.python), JOBS, *words).checked().out)
    assert text["client"].startswith("pyspark.sql.connect")
    assert (text["rows"], text["timed"], text["streamed"]) == (MESSAGES, MESSAGES, MESSAGES)
