"""A Spark session for Python sources, or a clear error.

Spark runs on Java and says little when there is none; and its workers run the first `python3` of
the path unless they are told otherwise, which then lacks this package.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import ConfigError
from penstock.spark import register
from penstock.spark.functions import register_functions

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
JAVA_VERSION_MIN = 17  # Spark 4's own
_RULE = f"Spark needs Java {JAVA_VERSION_MIN} or newer: install a JRE, or set JAVA_HOME to one"
_JAVA_START_S_MAX = 60  # of a loaded machine


def require_java() -> str:
    """The path of a usable Java that Spark will find. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    name = "JAVA_HOME" if home else "java"
    if not path or not os.access(path, os.X_OK):
        raise ConfigError(name, home, _RULE)
    try:
        output = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_JAVA_START_S_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(name, path, f"{error}; {_RULE}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', output)  # Java 8 says 1.8
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise ConfigError(name, output.partition("\n")[0] or path, _RULE)
    return path


def open_session(
    app_name: str,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    java_apart: bool = False,
) -> SparkSession:
    """The session of this process, with the data source and the SQL functions registered. Without a
    master it is that of spark-submit. `java_apart`: signals to this process's group do not reach
    the JVM, and SIGINT keeps its handler."""
    require_java()
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName(app_name)
    conf = conf.setMaster(master) if master else conf
    conf = conf.setAll(list({"spark.sql.session.timeZone": "UTC", **(settings or {})}.items()))
    if java_apart:
        _start_java_apart(conf)
    handler = signal.getsignal(signal.SIGINT)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if java_apart and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)  # PySpark's raises in the midst of what follows
    register(spark)
    register_functions(spark)
    return spark


def bound_batches(frame: DataFrame) -> None:
    """Before rows with maps or arrays go to Python. At each row Spark asks for the size of the
    batch so far, and goes back to the last row that has one: with batches of 50,000 messages
    without headers it handed a map over at a fifteenth of the rate."""
    conf, kinds = frame.sparkSession.conf, frame.schema.simpleString()
    is_ours = conf.get(ARROW_ROWS) == str(limits.SPARK_ROWS_MAX)
    if is_ours and ("map<" in kinds or "array<" in kinds):
        conf.set(ARROW_ROWS, str(limits.SPARK_ARROW_ROWS))


def _start_java_apart(conf: SparkConf) -> None:
    """The JVM in a process group of its own, unless there is one. A SIGTERM to the group of this
    process, as terminals and supervisors send it, would end the JVM in the middle of a batch, and
    an orderly stop could not be finished. It ends with this process in any case: its standard input
    ends."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
