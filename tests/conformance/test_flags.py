"""nsqd's flags, config keys, defaults, fatal starts and exit codes, row by row of `flags.toml`."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cases import each
from e2e.daemon import Daemon, shared_daemon
from penstock.command.flags import Kind
from penstock.errors import ConfigError
from penstock.nsqd.options import FLAGS, read_options

from .script import HERE

TABLE = tomllib.loads((HERE / "flags.toml").read_text("utf-8"))
ROWS: list[dict[str, Any]] = TABLE["flag"]
KINDS = {
    "bool": (Kind.BOOL,),
    "int": (Kind.INT,),
    "string": (Kind.STRING,),
    "duration": (Kind.DURATION,),
    "strings": (Kind.STRINGS, Kind.REPEATED),
    "floats": (Kind.FLOATS,),
}
BY_NAME = {flag.name: flag for flag in FLAGS}
GIVES_UP_S = 90


def key_of(row: dict[str, Any]) -> str:
    key: str = row.get("key", row["name"].replace("-", "_"))
    return key


def value_of(name: str, *arguments: str) -> Any:
    return read_options(arguments, {}).all_values[name]


daemon = shared_daemon()


@each("row", ROWS)
def test_each_flag_has_its_kind_and_key(row: dict[str, Any]) -> None:
    flag = BY_NAME[row["name"]]
    assert flag.kind in KINDS[row["kind"]]
    assert flag.file_key == key_of(row) or row["name"] == "config"


SET_BY_THE_HARNESS = ("tcp-address", "http-address", "data-path", "durability", "broadcast-address")


@each("row", [r for r in ROWS if "hidden" not in r and r["default"] != "*"])
def test_each_flag_has_its_default(daemon: Daemon, row: dict[str, Any]) -> None:
    expected = row.get("ours", row["default"])
    assert ("ours" in row) == ("why" in row)
    if row["name"] in SET_BY_THE_HARNESS:
        assert value_of(row["name"]) == expected
    else:
        assert daemon.http("GET", f"/config/{key_of(row)}") == (200, expected.encode())


def test_keys_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    """NSQ ignores them, and so `tls_requird` too."""
    file = tmp_path / "nsqd.cfg"
    file.write_text("nonsense = 1\nverbose = 1\nsnappy = 0\n")
    with pytest.raises(ConfigError, match="'nonsense' is not valid: there is no such key"):
        value_of("snappy", f"-config={file}")
    file.write_text("verbose = 1\nsnappy = 0\n")
    assert value_of("snappy", f"-config={file}") is False
    file.write_text("snappy = 2\n")
    with pytest.raises(ConfigError, match="snappy"):
        read_options([f"-config={file}"], {})


def test_flags_that_do_nothing_here_are_named_once_in_the_log(tmp_path: Path) -> None:
    idle = ("--queue-scan-worker-pool-max=2", "--max-bytes-per-file=1", "--worker-id=3")
    with Daemon(tmp_path / "data", *idle, "--verbose") as daemon:
        lines = [line for line in daemon.stderr().splitlines() if "without effect" in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    for flag in idle:
        assert flag[1:].split("=")[0] in lines[0]


@pytest.mark.parametrize(
    "row", TABLE["start"], ids=lambda row: f"{row['say']}{row.get('environment', '')}"
)
def test_a_start_that_ends_at_once(daemon: Daemon, tmp_path: Path, row: dict[str, Any]) -> None:
    places = {"<taken>": f"127.0.0.1:{daemon.tcp_port}", "<used>": str(daemon.data_path)}

    def placed(text: str) -> str:
        for place, value in places.items():
            text = text.replace(place, value)
        return text

    base = ["-tcp-address=127.0.0.1:0", "-http-address=", f"-data-path={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.nsqd.main", *base, *placed(row["say"]).split()],
        capture_output=True,
        text=True,
        timeout=GIVES_UP_S,
        env=os.environ | row.get("environment", {}),
    )
    assert done.returncode == row["code"], done.stderr
    assert placed(row["holds"]) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count(" FATAL: ") == (row["code"] == 1)
    if row["code"] == 2:
        assert "\nUsage of nsqd:\n" in done.stderr
