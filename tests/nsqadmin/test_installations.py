"""Which installations there are, from flags and files, and what each of them takes from whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.nsqadmin.installations import NAME_RULE, Installation
from penstock.nsqadmin.options import FatalOption, read_installations, read_options

PLAIN = "-lookupd-http-address=one:4161"


def _read(*flags: str) -> list[Installation]:
    return read_installations(read_options(["-data-path=/nowhere", *flags], {}))


def _file(path: Path, text: str) -> str:
    path.write_text(text)
    return f"-installation=staging={path}"


def test_who_names_none_has_one() -> None:
    (only,) = _read(PLAIN)
    assert (only.name, only.options.lookupd_http_address) == ("default", ("one:4161",))


def test_addresses() -> None:
    found = _read(PLAIN, "-installation-name=prod", "-installation=eu=lookupd:a:4161,b:4161",
                  "-installation=us-1=nsqd:http://c:4151")  # fmt: skip
    assert [one.name for one in found] == ["prod", "eu", "us-1"]
    assert found[1].options.lookupd_http_address == ("a:4161", "b:4161")
    assert found[1].options.nsqd_http_address == ()
    assert found[2].options.nsqd_http_address == ("http://c:4151",)
    assert found[2].options.lookupd_http_address == ()


def test_without_plain_addresses_the_first_one_is_the_default() -> None:
    found = _read("-installation=eu=lookupd:a:4161", "-installation=us=nsqd:b:4151")
    assert [one.name for one in found] == ["eu", "us"]
    with pytest.raises(FatalOption):
        _read()


def test_the_config_file_takes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "nsqadmin.toml"
    path.write_text(
        'nsqlookupd_http_addresses = ["one:4161"]\ninstallation_name = "prod"\n'
        'installations = ["eu=lookupd:a:4161,b:4161", "us=nsqd:c:4151"]\n'
    )
    found = _read(f"-config={path}")
    assert [one.name for one in found] == ["prod", "eu", "us"]
    assert found[1].options.lookupd_http_address == ("a:4161", "b:4161")


def test_a_file_says_what_is_its_own(tmp_path: Path) -> None:
    text = """nsqd_http_addresses = ["d:4151"]
http_client_request_timeout = "7s"
mask_field = ["iban"]
read_only = true
group_role = ["dev=destroy"]
"""
    found = _read(PLAIN, "-mask-field=card", "-lake=/lake", "-trace-table=/trace",
                  "-group-role=sre=destroy", "-admin-user=ann", "-graphite-url=http://g",
                  _file(tmp_path / "s.toml", text))  # fmt: skip
    plain, own = found[0].options, found[1].options
    assert own.http_client_request_timeout_ns == 7 * 10**9
    assert own.http_client_connect_timeout_ns == plain.http_client_connect_timeout_ns
    assert own.mask_field == ("card", "iban")  # hidden by the flags, hidden everywhere
    assert (own.lake, own.trace_table) == ((), ())  # tables belong to one
    assert (own.read_only, plain.read_only) == ("true", "auto")
    assert (own.group_role, own.admin_user) == (("dev=destroy",), ())  # rules of its own
    assert [one.has_own_rules for one in found] == [False, True]
    assert own.graphite_url == "http://g"
    assert plain.mask_field == ("card",)


def test_read_only_of_nsqadmin_holds_everywhere(tmp_path: Path) -> None:
    text = 'nsqd_http_addresses = ["d:4151"]\nread_only = false\n'
    found = _read(PLAIN, "-read-only=true", _file(tmp_path / "s.toml", text))
    assert [one.options.read_only for one in found] == ["true", "true"]


@each(
    ("flag", "value", "rule"),
    [
        ("eu", "eu", "NAME=FILE"),
        ("=nsqd:a:1", "", NAME_RULE),
        ("Eu=nsqd:a:1", "Eu", NAME_RULE),
        ("a.b=nsqd:a:1", "a.b", NAME_RULE),
        ("-a=nsqd:a:1", "-a", NAME_RULE),
        (f"{'x' * 33}=nsqd:a:1", "x" * 33, NAME_RULE),
        ("eu=nsqd:", "eu=nsqd:", "NAME=FILE"),
        ("eu=lookupd:a", "a", "host:port"),
        ("eu=nsqd:a:99999", "a:99999", "65535"),
        ("default=nsqd:a:1", "default", "two installations"),
        ("eu=/no/such/file", "eu=/no/such/file", "failed to load"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(flag: str, value: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(PLAIN, f"-installation={flag}")
    assert caught.value.value == value
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value", "rule"),
    [
        ("", "staging", "names neither"),
        ('data_path = "/x"', "data_path", "no key of an installation"),
        ('nsqd_http_addresses = ["a:1"]\nmask_fields = ["x"]', "mask_fields", "no key of"),
        ('nsqd_http_addresses = ["a:1"]\nnsqlookupd_http_addresses = ["b:1"]', "", "not both"),
        ('nsqd_http_addresses = ["a:1"]\nread_only = "maybe"', "maybe", "one of"),
        ('nsqd_http_addresses = ["a:1"]\ngraphite_url = "ftp://x"', "ftp://x", "http"),
        ('nsqd_http_addresses = ["a:1"]\npoll_interval = "1ns"', 1, "at least"),
        ("nsqd_http_addresses = [", None, "failed to load"),
    ],
)
def test_a_bad_file_too(tmp_path: Path, text: str, value: Any, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(PLAIN, _file(tmp_path / "s.toml", text))
    assert value is None or caught.value.value == value
    assert rule in str(caught.value)
    assert "staging" in str(caught.value)
