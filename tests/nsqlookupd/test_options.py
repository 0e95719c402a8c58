from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.command.flags import UsageError, resolve
from penstock.errors import ConfigError
from penstock.nsqlookupd.options import FLAGS, Options, read_options

S = 1_000_000_000
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "nsqlookupd.toml"
OFFICIAL = {
    "version", "config", "log-level", "log-prefix", "verbose", "tcp-address", "http-address",
    "broadcast-address", "inactive-producer-timeout", "tombstone-lifetime",
}  # fmt: skip
OURS = {
    "log-format", "http-allowed-host", "http-secret-file", "cluster", "cluster-etcd-ca",
    "cluster-password-file",
}  # fmt: skip
KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


def test_every_flag_is_known_and_has_a_field() -> None:
    assert {flag.name for flag in FLAGS} == OFFICIAL | OURS
    names = {field.name for field in fields(Options)}
    assert {flag.attribute for flag in FLAGS} - {"verbose"} == names


def test_defaults() -> None:
    options = read_options([], {})
    assert (options.tcp_address, options.http_address) == ("127.0.0.1:4160", "127.0.0.1:4161")
    assert options.inactive_producer_timeout_ns == 300 * S
    assert options.tombstone_lifetime_ns == 45 * S
    assert options.log_prefix == "[nsqlookupd] "


@pytest.mark.parametrize(
    ("arguments", "attribute", "value"),
    [
        (["--verbose", "-broadcast-address=127.0.0.1"], "broadcast_address", "127.0.0.1"),
        (["-tombstone-lifetime", "0s"], "tombstone_lifetime_ns", 0),
        (["-inactive-producer-timeout=1m30s"], "inactive_producer_timeout_ns", 90 * S),
        (["-log-level=WARN"], "log_level", "warn"),
    ],
)
def test_flags(arguments: list[str], attribute: str, value: Any) -> None:
    assert getattr(read_options(arguments, {}), attribute) == value


def test_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "nsqlookupd.cfg"
    file.write_text('tcp_address = "0.0.0.0:1"\ntombstone_lifetime = 300\n')
    options = read_options([f"--config={file}"], {"PENSTOCK_TCP_ADDRESS": "0.0.0.0:2"})
    assert (options.tcp_address, options.tombstone_lifetime_ns) == ("0.0.0.0:2", 300_000_000)


def test_mistakes() -> None:
    with pytest.raises(UsageError):
        read_options(["--nope"], {})
    with pytest.raises(ConfigError, match="inactive-producer-timeout"):
        read_options(["--inactive-producer-timeout=0s"], {})
    assert read_options(["--inactive-producer-timeout=0s", "--version"], {}).version


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    lines = KEY.findall(EXAMPLE.read_text())
    wanted = {flag.file_key for flag in FLAGS} - {"version", "config"}
    assert {line.split(" = ")[0] for line in lines} == wanted
    assert len(lines) == len(wanted)
    uncommented = tmp_path / "nsqlookupd.toml"
    uncommented.write_text("\n".join(lines))
    resolved = resolve(FLAGS, [f"--config={uncommented}"], {})
    for flag in FLAGS:
        if flag.file_key in wanted - {"broadcast_address"}:
            assert resolved.explicit[flag.name] == flag.default, flag.file_key
