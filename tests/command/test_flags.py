"""Go-style flags, the environment, the file, and who wins."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock.command.flags import (
    Flag,
    Kind,
    UsageError,
    parse_command_line,
    resolve,
    usage,
    value_from_toml,
)
from penstock.errors import ConfigError
from penstock.nsqadmin.options import FLAGS as NSQADMIN
from penstock.nsqd.options import FLAGS as NSQD
from penstock.nsqlookupd.options import FLAGS as NSQLOOKUPD

FLAGS = (
    Flag("config", Kind.STRING, "", "the file"),
    Flag("name", Kind.STRING, "nobody", "a name"),
    Flag("size", Kind.INT, 5, "a size", key="the_size"),
    Flag("rate", Kind.FLOAT, 0.5, "a rate"),
    Flag("wait-time", Kind.DURATION, 2_000_000_000, "a while"),
    Flag("verbose", Kind.BOOL, False, "talk"),
    Flag("peer", Kind.STRINGS, (), "peers"),
    Flag("network", Kind.REPEATED, (), "networks"),
    Flag("quantile", Kind.FLOATS, (), "quantiles", has_effect=False),
    Flag("level", Kind.STRING, "info", "a level", choices=("info", "warn")),
    Flag("tls", Kind.STRING, "false", "tls", bare="true"),
)
BY_NAME = {flag.name: flag for flag in FLAGS}


@each(
    ("arguments", "values"),
    [
        ([], {}),
        (["-name=x"], {"name": "x"}),
        (["--name", "x"], {"name": "x"}),
        (["-name", "-size"], {"name": "-size"}),
        (["-name="], {"name": ""}),
        (["-name=a=b"], {"name": "a=b"}),
        (["-name=a", "-name=b"], {"name": "b"}),
        (["-size=-7"], {"size": -7}),
        (["-size=0x10"], {"size": 16}),
        (["-rate=0.25"], {"rate": 0.25}),
        (["-wait-time", "1h30m"], {"wait-time": 5_400_000_000_000}),
        (["-verbose", "-size=1"], {"verbose": True, "size": 1}),
        (["-verbose=false"], {"verbose": False}),
        (["-peer=a,b", "-peer", "c"], {"peer": ("a", "b", "c")}),
        (["-network=a,b", "-network", "c"], {"network": ("a,b", "c")}),
        (["-quantile=0.5, 0.9"], {"quantile": (0.5, 0.9)}),
        (["-quantile=0.9", "-quantile=0.5"], {"quantile": (0.9, 0.5)}),
        (["-level=WARN"], {"level": "warn"}),
        (["-tls"], {"tls": "true"}),
        (["-tls=false", "--"], {"tls": "false"}),
    ],
)
def test_command_line(arguments: list[str], values: dict[str, Any]) -> None:
    assert parse_command_line(FLAGS, arguments) == values


@each(
    ("arguments", "message"),
    [
        (["-unknown"], "flag provided but not defined: -unknown"),
        (["--verbsoe"], "flag provided but not defined: -verbsoe; is it -verbose?"),
        (["---name=x"], "bad flag syntax: ---name=x"),
        (["name"], "unexpected argument: name"),
        (["-"], "unexpected argument: -"),
        (["--", "rest"], "unexpected argument: rest"),
        (["-name"], "flag needs an argument: -name"),
        (["-rate=nan"], 'invalid value "nan" for flag -rate: a number is wanted'),
        (["-size=9223372036854775808"], "a number of 64 bits is wanted"),
        (["-size=x"], 'invalid value "x" for flag -size: a whole number is wanted'),
        (["-verbose=yes"], 'invalid value "yes" for flag -verbose: true or false is wanted'),
        (["-quantile=x"], "numbers separated by commas are wanted"),
        (["-wait-time=5"], 'invalid value "5" for flag -wait-time'),
        (["-level=loud"], "one of info, warn"),
    ],
)
def test_command_line_mistakes(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command_line(FLAGS, arguments)
    assert message in str(caught.value)


@each(
    ("name", "toml", "value"),
    [
        ("name", "x", "x"),
        ("size", 7, 7),
        ("rate", 1, 1.0),
        ("rate", "0.75", 0.75),
        ("size", "7", 7),
        ("wait-time", 1500, 1_500_000_000),
        ("wait-time", "1.5s", 1_500_000_000),
        ("verbose", True, True),
        ("verbose", "true", True),
        ("peer", ["a", "b"], ("a", "b")),
        ("network", ["a", "b,c"], ("a", "b,c")),
        ("quantile", [0.5, 1], (0.5, 1.0)),
        ("quantile", "0.9,0.5", (0.9, 0.5)),
        ("tls", True, "true"),
    ],
)
def test_values_of_the_file(name: str, toml: Any, value: Any) -> None:
    assert value_from_toml(BY_NAME[name], toml) == value


@each(
    ("name", "toml", "rule"),
    [
        ("size", 1.5, "does not fit"),
        ("rate", True, "does not fit"),
        ("size", True, "does not fit"),
        ("verbose", 2, "does not fit"),
        ("name", ["x"], "does not fit"),
        ("name", 5, "does not fit"),
        ("peer", 5, "does not fit"),
        ("size", 1 << 63, "64 bits"),
        ("wait-time", 1 << 60, "64 bits"),
    ],
)
def test_values_that_are_refused(name: str, toml: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        value_from_toml(BY_NAME[name], toml)


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('name = "file"\nthe_size = 1\nwait_time = 100\n')
    environment = {"PENSTOCK_NAME": "environment", "PENSTOCK_THE_SIZE": "2", "OTHER": "?"}
    resolved = resolve(FLAGS, [f"-config={file}", "-name=flag"], environment)
    assert resolved == {
        "config": str(file),
        "name": "flag",
        "size": 2,
        "rate": 0.5,
        "wait_time_ns": 100_000_000,
        "verbose": False,
        "peer": (),
        "network": (),
        "quantile": (),
        "level": "info",
        "tls": "false",
    }


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("the_size = 9\n")
    assert resolve(FLAGS, [], {"PENSTOCK_CONFIG": str(file)})["size"] == 9


def test_mistakes_outside_the_command_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("the_size = [")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("the_size = 1.5")
    for arguments, environment, name in (
        ([], {"PENSTOCK_THE_SIZE": "x"}, "PENSTOCK_THE_SIZE"),
        ([f"-config={bad}"], {}, "config"),
        ([f"-config={tmp_path}/none.toml"], {}, "config"),
        ([f"-config={wrong}"], {}, f"{wrong}: the_size"),
    ):
        with pytest.raises(ConfigError) as caught:
            resolve(FLAGS, arguments, environment)
        assert caught.value.name == name


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        ("nam", "there is no such key; the nearest is name"),
        ("wait-time", "there is no such key; the nearest is wait_time"),
        ("size", "the key of -size is the_size"),
        ("qqq", "there is no such key"),
    ],
)
def test_a_key_that_nobody_reads_is_refused(tmp_path: Path, key: str, rule: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'name = "x"\n{key} = "a secret"\n')
    with pytest.raises(ConfigError) as caught:
        resolve(FLAGS, [f"-config={file}"], {})
    assert str(caught.value) == f"{file}: {key!r} is not valid: {rule}"
    file.write_text("[prog]\nname = 'x'\n")
    with pytest.raises(ConfigError, match="'prog' is not valid"):
        resolve(FLAGS, [f"-config={file}"], {})


def test_a_variable_that_nobody_reads_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(FLAGS, [], {"PENSTOCK_LEVLE": "a secret"})
    rule = "there is no such variable; the nearest is PENSTOCK_LEVEL"
    assert str(caught.value) == f"environment: 'PENSTOCK_LEVLE' is not valid: {rule}"


def test_usage_names_every_flag_its_default_and_its_effect() -> None:
    text = usage("prog", FLAGS)
    assert text.startswith("Usage of prog:\n")
    for flag in FLAGS:
        assert f"  -{flag.name}" in text
    assert "a while (default 2s)" in text
    assert "quantiles (no effect)" in text


# --- docs/<daemon>.toml names every key of its daemon, and what its default is ---


DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMAND_LINE_ONLY = {"version", "config"}
KEY = re.compile(r"^# (\w+ = .*)$", re.MULTILINE)


@each(
    ("program", "flags", "from_the_host"),  # of the latter the file shows an example
    [
        ("nsqd", NSQD, {"id", "broadcast_address"}),
        ("nsqlookupd", NSQLOOKUPD, {"broadcast_address"}),
        ("nsqadmin", NSQADMIN, set()),
    ],
)
def test_the_example_has_every_key_with_its_default(
    tmp_path: Path, program: str, flags: Sequence[Flag], from_the_host: set[str]
) -> None:
    lines = KEY.findall((DOCS / f"{program}.toml").read_text())
    keys = [line.split(" = ")[0] for line in lines]
    wanted = {flag.file_key for flag in flags} - COMMAND_LINE_ONLY
    assert len(keys) == len(set(keys))
    assert set(keys) == wanted
    uncommented = tmp_path / "example.toml"
    uncommented.write_text("\n".join(lines))
    given = resolve(flags, [f"--config={uncommented}"], {})
    for flag in flags:
        if flag.file_key in wanted - from_the_host:
            found = given[flag.attribute]
            assert (tuple(found) if isinstance(found, list) else found) == flag.default, flag.name


def test_the_example_of_nsqd_says_what_has_no_effect() -> None:
    head, later = re.split(r"^## Accepted.*$", (DOCS / "nsqd.toml").read_text(), flags=re.M)
    for flag in NSQD:
        if flag.file_key not in COMMAND_LINE_ONLY | {"verbose"}:
            part = head if flag.has_effect else later
            assert f"# {flag.file_key} = " in part
