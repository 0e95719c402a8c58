"""How tests start Java: machines that start quickly, and later ones quicker still.

Half of a Spark driver's start goes into reading the same classes out of the same jars. Java can
keep them in an archive that the next machine maps (class data sharing). `keep_classes` has one made
in the background, by a small session of its own, while the first tests run; who starts later uses
it. Nothing depends on it: a machine that finds none, or one that does not fit, reads the jars. It
stays in pytest's cache for the next run.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # what Java says of an archive would go to stdout
# Of a small session in this process.
SESSION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
}
_CLASSES = "PENSTOCK_TEST_JAVA_CLASSES"  # where the archive is, or will be


def options() -> str:
    """For a machine that is started now."""
    classes = os.environ.get(_CLASSES, "")
    if not classes or not os.path.exists(classes):
        return PLAIN
    return f"{PLAIN} -Xshare:auto -XX:SharedArchiveFile={classes} {QUIET}"


@contextmanager
def keep_classes(directory: Path) -> Iterator[None]:
    """Until its end `options` knows of an archive in this directory, once there is one."""
    classes = directory / f"{_identity()}.jsa"
    os.environ[_CLASSES] = str(classes)
    makes = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"  # one of the workers is enough
    maker = _make(classes) if makes and not classes.exists() else None
    try:
        yield
    finally:
        del os.environ[_CLASSES]
        if maker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(maker.pid, signal.SIGKILL)
            maker.wait()
            classes.with_suffix(".unfinished").unlink(missing_ok=True)


def _identity() -> str:
    """Another Java or another Spark has other classes."""
    import pyspark  # not for those who only collect tests

    java = os.path.realpath(shutil.which("java") or "java")
    home = os.path.realpath(pyspark.__path__[0])
    words = (java, os.environ.get("JAVA_HOME", ""), pyspark.__version__, home)
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _make(classes: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("keepclasses.py")), str(classes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
