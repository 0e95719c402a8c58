"""`penstock context`, and verbs that work on one, against real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.certificates import Certificates
from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually, nsqd
from penstock.errors import PenstockError
from penstock.tools import connection
from penstock.tools.contexts import Context
from penstock.tools.main import main

Run = Callable[..., tuple[int, str, str]]


class Place:
    """A lookupd, and an nsqd with HTTPS that is registered there."""

    def __init__(self, lookupd: Lookupd, daemon: Daemon, certificates: Certificates) -> None:
        self.lookupd = f"127.0.0.1:{lookupd.http_port}"
        self.http = f"127.0.0.1:{daemon.http_port}"
        self.tcp = f"127.0.0.1:{daemon.tcp_port}"
        port = daemon.stderr().split("HTTPS: listening on 127.0.0.1:")[1].split()[0]
        self.https = f"https://127.0.0.1:{port}"
        self.authority = str(certificates.authority)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("contexts")
    certificates = Certificates(path / "tls")
    with Lookupd(path / "lookupd") as lookupd:
        daemon = nsqd(path / "data", lookupd.address, flags=tuple(certificates.flags))
        with daemon:
            eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 1)
            yield Place(lookupd, daemon, certificates)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (*connection.TCP, "context"):
        monkeypatch.delenv(f"PENSTOCK_{name.upper()}", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def as_json(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def test_making_changing_and_forgetting(run: Run) -> None:
    assert run("context", "list")[:2] == (0, "no contexts: penstock context save NAME makes one\n")
    save = ("context", "save", "prod", "--json")
    assert as_json(run(*save, "--lookupd-http-address", "l:1", "--tls-cert", "c", "--tls-key",
                       "/k"))["tls_cert"] == str(Path.cwd() / "c")  # fmt: skip
    changed = as_json(run(*save, "--description", "money", "--tls-cert=", "--tls-key="))
    assert changed == {
        "name": "prod",
        "selected": False,
        "description": "money",
        "lookupd_http_address": ["l:1"],
    }
    other = as_json(run(*save, "--nsqd-http-address", "n:1"))  # one kind replaces the other
    assert (other["nsqd_http_address"], "lookupd_http_address" in other) == (["n:1"], False)
    assert as_json(run(*save, "--lookupd-http-address", "l:1")) == changed
    code, _, err = run("context", "save", "prod", "--lookupd-http-address=")
    assert (code, err) == (1, "penstock context: context prod: it needs an address\n")
    assert as_json(run("context", "show", "prod", "--json")) == changed
    assert run("context", "save", "test", "--nsqd-http-address", "t:1", "--select")[0] == 0
    listed = as_json(run("context", "list", "--json"))
    assert (listed["selected"], listed["used"], sorted(listed["contexts"])) == (
        "test", "test", ["prod", "test"],
    )  # fmt: skip
    code, _, err = run("context", "remove", "test")
    assert (code, "give --yes" in err) == (1, True)
    assert as_json(run("context", "remove", "test", "--yes", "--json"))["selected"] is None
    assert run("context", "remove", "test", "--yes")[0] == 1


def test_a_verb_works_on_the_one_that_is_meant(run: Run, place: Place) -> None:
    run("context", "save", "here", "--lookupd-http-address", place.lookupd, "--select")
    run("context", "save", "away", "--nsqd-http-address", "127.0.0.1:1")
    assert run("topic", "create", "orders")[::2] == (0, "context here (selected)\n")
    code, out, err = run("topic", "list")
    assert (code, out, err) == (0, "orders\n", "")  # what only looks says nothing of it
    assert run("topic", "list", "--context", "away")[0] == 1
    code, _, err = run("topic", "create", "x", "--context", "gone")
    assert (code, err) == (1, "penstock topic: there is no context 'gone'; there are away, here\n")
    assert run("pub", "orders", "x", "--context", "here")[2].startswith("context here (--context)")
    run("channel", "create", "orders", "all")
    assert run("tail", "nothing", "--context", "away", "--count", "1")[0] == 1
    run("topic", "pause", "orders", "--nsqd-http-address", place.http)
    assert run("topic", "unpause", "orders", "--nsqd-http-address", place.http)[2] == ""


def test_tail_reads_over_tcp_and_the_context_may_know_http_only(place: Place) -> None:
    for address in (place.http, f"http://{place.http}"):
        found = connection.Where(Context(nsqd_http_address=(address,)), "x", "selected")
        assert found.tcp_addresses() == ([place.tcp], [])
    both = connection.Where(
        Context(nsqd_http_address=(place.http,), nsqd_tcp_address=("t:1",)), "x"
    )
    assert both.tcp_addresses() == (["t:1"], [])
    with pytest.raises(PenstockError, match="context x has no nsqd_tcp_address or"):
        connection.Where(Context(admin="http://a"), "x").tcp_addresses()
    assert connection.Where(Context()).tcp_addresses() == (["127.0.0.1:4150"], [])


def test_https_with_the_authorities_of_the_context(run: Run, place: Place) -> None:
    run("context", "save", "strict", "--nsqd-http-address", place.https)
    code, _, err = run("stats", "--context", "strict")
    assert (code, "CERTIFICATE_VERIFY_FAILED" in err) == (1, True)
    run("context", "save", "strict", "--tls-root-ca-file", place.authority)
    assert run("stats", "--context", "strict")[0] == 0
    flags = ("--nsqd-http-address", place.https)
    assert run("stats", *flags, "--tls-root-ca-file", place.authority)[0] == 0
    assert run("stats", *flags, "--tls-insecure-skip-verify")[0] == 0
