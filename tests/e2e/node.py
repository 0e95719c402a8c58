"""Node libraries for tests: installed by name with npm, once, outside the source tree.

They go beside the virtual environment's own packages, or into the temporary directory where there
is no environment. What is installed is what `package.json` here names. Without npm, or without a
registry to ask, there is nothing to test with: the tests that want it are skipped, and say why.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
INSTALL_S_MAX = 90


def node_modules() -> Path:
    """The directory that NODE_PATH has to name. Skips the test when there can't be one."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed: nothing to run nsqjs with")
    wanted = (HERE / "package.json").read_bytes()
    home = cache_directory() / hashlib.sha256(wanted).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "lock").open("w") as lock:  # test runs may stand side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "installed").exists():
            (home / "package.json").write_bytes(wanted)
            install(npm, home)
            (home / "installed").touch()
    return home / "node_modules"


def cache_directory() -> Path:
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "node"
    return Path(tempfile.gettempdir()) / f"penstock-node-{os.getuid()}"


def install(npm: str, home: Path) -> None:
    flags = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(
            [npm, "install", *flags],
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm install nsqjs took more than {INSTALL_S_MAX} s")
    if done.returncode:
        pytest.skip(f"npm install nsqjs failed: {done.stderr.strip()[-300:]}")
