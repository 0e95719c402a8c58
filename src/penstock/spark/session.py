"""A Spark session as Python sources need it, or a clear word about why there can be none.

Spark runs on Java and says little when there is none; and its workers run the first `python3` of
the path unless they are told otherwise, which then lacks this package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.spark import register
from penstock.spark.functions import register_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17  # Spark 4's own
_RULE = f"Spark needs Java {JAVA_VERSION_MIN} or newer: install a JRE, or set JAVA_HOME to one"
_JAVA_START_S_MAX = 60  # of a loaded machine


def require_java() -> str:
    """The path of a Java that Spark will find, and can use. ConfigError says what is wrong."""
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    name = "JAVA_HOME" if home else "java"
    if not path or not os.access(path, os.X_OK):
        raise ConfigError(name, home, _RULE)
    try:
        said = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_JAVA_START_S_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(name, path, f"{error}; {_RULE}") from error
    version = java_version(said)
    if version is None or version < JAVA_VERSION_MIN:
        raise ConfigError(name, said.partition("\n")[0] or path, _RULE)
    return path


def java_version(said: str) -> int | None:
    """The feature version in what `java -version` says; Java 8 says 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def open_session(
    app_name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, with the data source and the SQL functions registered. Without
    a master it is the one that spark-submit was given."""
    require_java()
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    builder = builder.master(master) if master else builder
    for name, value in {"spark.sql.session.timeZone": "UTC", **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    register_functions(spark)
    return spark
