"""Contexts as text and as a file: what is refused, and that nothing is lost or shown."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import each
from e2e.certificates import Certificates
from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually, nsqd
from penstock.errors import PenstockError
from penstock.tools import connection, contexts
from penstock.tools.contexts import Context, Contexts, ContextTrouble

from .utilities import Run, as_json, err_of

FULL = Context(
    description='what "earns" the money \\ übrigens',
    nsqd_tcp_address=("a:4150",),
    lookupd_http_address=("l1:4161", "https://l2:4162"),
    tls=True,
    tls_root_ca_file="/etc/ca.pem",
    tls_cert="/etc/cert.pem",
    tls_key="/etc/key.pem",
    auth_secret_env="SECRET",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "penstock" / "contexts.toml"


@each(
    ("name", "context", "output"),
    [
        ("-x", FULL, "is no name of a context"),
        ("a b", FULL, "is no name of a context"),
        ("x" * 65, FULL, "is no name of a context"),
        ("x", Context(), "needs an address"),
        ("x", Context(nsqd_http_address=("a:1",), lookupd_http_address=("b:1",)), "not both"),
        ("x", Context(nsqd_http_address=("a",), tls_cert="c"), "go together"),
        ("x", Context("d", ("a:1",), auth_secret_env="a", auth_secret_file="b"), "not both"),
        ("x", Context(nsqd_http_address=("a\n:1",)), "without control characters"),
    ],
)
def test_refused_contexts(name: str, context: Context, output: str) -> None:
    with pytest.raises(ContextTrouble, match=output):
        Contexts().put(name, context)


@each("field", ["nsqd_http_address", "lookupd_http_address"])
def test_a_password_is_refused_and_not_repeated(field: str) -> None:
    url = "https://ann:hidden@h:1"
    context = Context(**{field: (url,)})  # type: ignore[arg-type]
    with pytest.raises(ContextTrouble) as caught:
        Contexts().put("x", context)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "not = [toml",
        "version = 2",
        "surprise = 1",
        '[context.a]\nnsqd_http_address = "a:1"',
        '[context.a]\nnsqd_http_address = ["a:1"]\npassword = "x"',
        '[context."-"]\nnsqd_http_address = ["a:1"]',
        'selected = "gone"',
        "a = " + "[" * 5000,
    ],
)
def test_a_damaged_file_is_named(text: str, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(ContextTrouble, match="is corrupt: ") as caught:
        contexts.load()
    assert str(caught.value).startswith(str(file))
    with pytest.raises(ContextTrouble, match="is corrupt"), contexts.changed():
        pass
    assert file.read_text() == text


def test_the_file_is_private_and_whole(file: Path) -> None:
    assert contexts.load() == Contexts()
    with contexts.changed() as found:
        found.put("a", FULL)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    before = file.read_bytes()
    with pytest.raises(ContextTrouble), contexts.changed() as found:
        found.context["b"] = found.get("gone")
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["contexts.toml"]


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "contexts.toml"
    kept.parent.mkdir()
    file.parent.mkdir(parents=True)
    file.symlink_to(kept)
    with contexts.changed() as found:
        found.put("a", FULL)
    assert file.is_symlink()
    assert "a" in contexts.read(kept.read_text()).context


def test_two_changes_at_the_same_time_are_both_there() -> None:
    def put(name: str) -> None:
        with contexts.changed() as found:
            found.put(name, FULL)

    names = [f"c{number}" for number in range(16)]
    threads = [threading.Thread(target=put, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contexts.load().context) == sorted(names)


# --- `penstock context`, and verbs that work on one, against real daemons ---


class Installation:
    """A lookupd, and an nsqd with HTTPS that is registered there."""

    def __init__(self, lookupd: Lookupd, daemon: Daemon, certificates: Certificates) -> None:
        self.lookupd = f"127.0.0.1:{lookupd.http_port}"
        self.http = f"127.0.0.1:{daemon.http_port}"
        self.tcp = f"127.0.0.1:{daemon.tcp_port}"
        port = daemon.stderr().split("HTTPS: listening on 127.0.0.1:")[1].split()[0]
        self.https = f"https://127.0.0.1:{port}"
        self.authority = str(certificates.authority)


@pytest.fixture(scope="module")
def spot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    path = tmp_path_factory.mktemp("contexts")
    certificates = Certificates(path / "tls")
    with Lookupd(path / "lookupd") as lookupd:
        daemon = nsqd(path / "data", lookupd.address, flags=tuple(certificates.flags))
        with daemon:
            eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 1)
            eventually(lambda: "HTTPS: listening" in daemon.stderr())
            yield Installation(lookupd, daemon, certificates)


@pytest.fixture
def run(penstock: Run) -> Run:
    return penstock


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
    assert "give --yes" in err_of(run("context", "remove", "test"), 1)
    assert as_json(run("context", "remove", "test", "--yes", "--json"))["selected"] is None
    assert run("context", "remove", "test", "--yes")[0] == 1


def test_a_verb_works_on_the_one_that_is_meant(run: Run, spot: Installation) -> None:
    run("context", "save", "here", "--lookupd-http-address", spot.lookupd, "--select")
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
    run("topic", "pause", "orders", "--nsqd-http-address", spot.http)
    assert run("topic", "unpause", "orders", "--nsqd-http-address", spot.http)[2] == ""


def test_tail_reads_over_tcp_and_the_context_may_know_http_only(spot: Installation) -> None:
    for address in (spot.http, f"http://{spot.http}"):
        found = connection.Where(Context(nsqd_http_address=(address,)), "x", "selected")
        assert found.tcp_addresses() == ([spot.tcp], [])
    both = connection.Where(Context(nsqd_http_address=(spot.http,), nsqd_tcp_address=("t:1",)), "x")
    assert both.tcp_addresses() == (["t:1"], [])
    with pytest.raises(PenstockError, match="context x has no nsqd_tcp_address or"):
        connection.Where(Context(description="a"), "x").tcp_addresses()
    assert connection.Where(Context()).tcp_addresses() == (["127.0.0.1:4150"], [])


def test_https_with_the_authorities_of_the_context(run: Run, spot: Installation) -> None:
    run("context", "save", "strict", "--nsqd-http-address", spot.https)
    assert "CERTIFICATE_VERIFY_FAILED" in err_of(run("stats", "--context", "strict"), 1)
    run("context", "save", "strict", "--tls-root-ca-file", spot.authority)
    assert run("stats", "--context", "strict")[0] == 0
    flags = ("--nsqd-http-address", spot.https)
    assert run("stats", *flags, "--tls-root-ca-file", spot.authority)[0] == 0
    assert run("stats", *flags, "--tls-insecure-skip-verify")[0] == 0
