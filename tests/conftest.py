"""One Spark session for the whole run: starting one costs more than the tests that use it. And
what Hypothesis may take its time for, and the loops of async tests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import cases
import selection
from penstock.errors import ConfigError
from penstock.spark.session import open_session, require_java
from spark import quickjvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about the machine than about what it tries. New examples are
# looked for in `make test-long`, as cases.fresh_seed says.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize=not cases.IS_LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

SETTINGS = {
    **quickjvm.SESSION,
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def pytest_configure(config: pytest.Config) -> None:
    # Under nohup the daemons of the tests would ignore it, too, as they should.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):  # the reports of all workers come to the controller
        config.pluginmanager.register(selection.SlowestFiles(), "penstock-slowest-files")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> selection.ByFile:
    return selection.ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.option.markexpr != "not long" or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return True if selection.has_only_long(path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    selection.arrange(items)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported stays: the collector need not walk it again and again


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An async test has a loop of its own, made by its module's LOOP_FACTORY when there is one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    factory = getattr(pyfuncitem.module, "LOOP_FACTORY", None)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_settled(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})))
    return True


async def _settled(test: Coroutine[Any, Any, None]) -> None:
    """A server's handler that was made in the last moment has begun, so that it closes its
    connection when it is cancelled."""
    try:
        await test
    finally:
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture(scope="session")
def java(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without one, tests that start Spark by themselves are skipped."""
    try:
        require_java()
    except ConfigError as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        with suppress(AttributeError, OSError):  # pytest has no cache, or may not write it
            classes = request.config.cache.mkdir("spark-classes")
            stack.enter_context(quickjvm.keep_classes(classes))
        yield


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.extraJavaOptions": quickjvm.options(),
    }
    session = open_session("penstock tests", "local[2]", settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
