"""The official nsqadmin's command line and configuration file."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.nsqadmin.options import FLAGS, read_options

S = 1_000_000_000
ASKED = "-nsqd-http-address=127.0.0.1:4151"
# flag: (official default, another value, what it means, its key in the file when that is another)
OFFICIAL: dict[str, tuple[object, str, object, str]] = {
    "base-path": ("/", "/x", "/x", ""),
    "dev-static-dir": ("", "/tmp", None, ""),
    "lookupd-http-address": ((), "b:1", ("b:1",), "nsqlookupd_http_addresses"),
    "nsqd-http-address": ((), "b:1", ("b:1",), "nsqd_http_addresses"),
    "admin-user": ((), "ann", ("ann",), "admin_users"),
    "acl-http-header": ("X-Forwarded-User", "X-Me", "X-Me", ""),
    "allow-config-from-cidr": ("127.0.0.1/8", "10.0.0.0/8", "10.0.0.0/8", ""),
    "notification-http-endpoint": ("", "http://a/b", "http://a/b", ""),
    "graphite-url": ("", "http://g", "http://g", ""),
    "proxy-graphite": (False, "true", True, ""),
    "statsd-prefix": ("nsq.%s", "x.%s", "x.%s", ""),
    "statsd-interval": (60 * S, "30s", 30 * S, ""),
    "statsd-counter-format": ("stats.counters.%s.count", "c.%s", "c.%s", ""),
    "statsd-gauge-format": ("stats.gauges.%s", "g.%s", "g.%s", ""),
    "http-client-connect-timeout": (2 * S, "1s", S, ""),
    "http-client-request-timeout": (5 * S, "1.5s", 1_500_000_000, ""),
    "http-client-tls-insecure-skip-verify": (False, "true", True, ""),
    "http-client-tls-root-ca-file": ("", "ca.pem", "ca.pem", ""),
    "log-level": ("info", "debug", "debug", ""),
    "log-prefix": ("[nsqadmin] ", "x ", "x ", ""),
}
MODES = ("lookupd-http-address", "nsqd-http-address")
ATTRIBUTES = {flag.name: flag.attribute for flag in FLAGS}


def arguments(flag: str, *more: str) -> list[str]:
    """With what nsqadmin needs to start."""
    return [*more] if flag in MODES else [ASKED, *more]


@pytest.mark.parametrize("flag", OFFICIAL)
def test_a_flag(flag: str, tmp_path: Path) -> None:
    """Its default, with one dash and two, and in the file."""
    default, text, value, key = OFFICIAL[flag]
    attribute, key = ATTRIBUTES[flag], key or flag.replace("-", "_")
    file = tmp_path / "nsqadmin.cfg"
    listed = f'["{text}"]' if isinstance(value, tuple) else f'"{text}"'
    shown = text if isinstance(value, bool) else listed
    file.write_text(f"{key} = {shown}\n")
    if flag not in MODES:
        assert getattr(read_options([ASKED], {}), attribute, "") == default
    for given in (arguments(flag, f"-{flag}={text}"), arguments(flag, f"--{flag}={text}"),
                  arguments(flag, f"-config={file}")):  # fmt: skip
        found = read_options(given, {})
        assert value is None or getattr(found, attribute) == value, given


def test_all_official_flags_are_there() -> None:
    others = {"http-address", "config", "version", "verbose", "http-client-tls-cert",
              "http-client-tls-key"}  # fmt: skip
    assert OFFICIAL.keys() | others <= {flag.name for flag in FLAGS}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "--nsqd-http-address or --lookupd-http-address required"),
        ([ASKED, "-lookupd-http-address=b:1"],
         "use --nsqd-http-address or --lookupd-http-address not both"),
        ([ASKED, "-http-client-tls-cert=a"],
         "--http-client-tls-key must be specified with --http-client-tls-cert"),
        ([ASKED, "-http-client-tls-key=a"],
         "--http-client-tls-cert must be specified with --http-client-tls-key"),
        ([ASKED, "-allow-config-from-cidr=10.0.0.300/8"], "10.0.0.300/8"),
        ([ASKED, "-graphite-url=no url"], "no url"),
    ],
)  # fmt: skip
def test_flags_that_prevent_a_start(given: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_options(given, {})
    assert words in str(raised.value)
