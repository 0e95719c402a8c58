"""What an auth server is asked, and which answers count."""

import asyncio
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cases import each
from e2e.answering import served
from e2e.certificates import Certificates
from e2e.v2upgraded import Upgraded
from penstock import limits
from penstock.errors import AuthFailed, ConfigError, FetchFailed
from penstock.nsqd.auth import Applicant, Auth, read_grant
from penstock.nsqd.options import read_options
from penstock.nsqd.tls import client_context
from penstock.wire import frames

from .authserver import AuthServer
from .world import V2, Running, dpub, error, eventually, mpub, ok, pub

ENTRY = {"permissions": ["subscribe", "publish"], "topic": ".*", "channels": [".*"]}
GOOD = {"ttl": 3600, "identity": "u", "identity_url": "http://x", "authorizations": [ENTRY]}
WHO = Applicant("127.0.0.1", "", False, b"s&c r\xff=")


def entry(**changed: Any) -> dict[str, Any]:
    return GOOD | {"authorizations": [ENTRY | changed]}


def test_a_good_answer() -> None:
    grant = read_grant(GOOD)
    assert (grant.identity, grant.identity_url, grant.ttl_s) == ("u", "http://x", 3600)
    assert grant.encode() == b'{"identity":"u","identity_url":"http://x","permission_count":1}'
    assert read_grant({"TTL": 1, "Authorizations": None}).entries == ()
    assert read_grant(GOOD | {"ttl": 1 << 70}).ttl_s == limits.AUTH_TTL_S_MAX


@each(
    ("changed", "subscribes", "publishes"),
    [
        ({}, True, True),
        ({"permissions": ["subscribe"]}, True, False),
        ({"permissions": ["publish"]}, False, True),
        ({"permissions": []}, False, False),
        ({"permissions": None}, False, False),
        ({"topic": "^t$"}, True, True),
        ({"topic": "opi"}, False, False),
        ({"topic": ""}, True, True),
        ({"channels": []}, False, False),
        ({"channels": ["^c$"]}, True, False),
        ({"channels": ["^$"]}, False, True),
        ({"channels": ["nope", "c?"]}, True, True),
    ],
)
def test_permissions_of_a_grant(changed: dict[str, Any], subscribes: bool, publishes: bool) -> None:
    grant = read_grant(entry(**changed))
    assert grant.allows("t", "c") == subscribes
    assert grant.allows("t") == publishes


def test_entries_do_not_combine() -> None:
    halves = [ENTRY | {"topic": "^a$", "permissions": ["publish"]},
              ENTRY | {"topic": "^b$", "permissions": ["subscribe"]}]  # fmt: skip
    grant = read_grant(GOOD | {"authorizations": halves})
    assert (grant.allows("a"), grant.allows("b")) == (True, False)
    assert (grant.allows("a", "c"), grant.allows("b", "c")) == (False, True)


@each(
    ("answer", "rule"),
    [
        ([], "Expected `object`, got `array`"),
        (None, "invalid TTL 0"),
        (GOOD | {"ttl": 0}, "invalid TTL 0"),
        (GOOD | {"ttl": 1.5}, r"got `float` - at `\$.ttl`"),
        (GOOD | {"ttl": True}, r"got `bool` - at `\$.ttl`"),
        (GOOD | {"identity": 1}, r"got `int` - at `\$.identity`"),
        (GOOD | {"authorizations": {}}, r"got `object` - at `\$.authorizations`"),
        (GOOD | {"authorizations": ["x"]}, r"got `str` - at `\$.authorizations"),
        (entry(permissions="publish"), r"got `str` - at .*permissions`"),
        (entry(permissions=["admin"]), "Invalid enum value 'admin'"),
        (entry(topic="("), r"unable to compile topic '\('"),
        (entry(channels=["a", "*"]), r"unable to compile channel '\*'"),
        (entry(channels=["(?=x)"]), "unable to compile channel"),
        (entry(channels="x"), r"got `str` - at .*channels`"),
        (entry(channels=["x"] * 10_000), "more than 10000 patterns"),
    ],
)
def test_invalid_grants(answer: Any, rule: str) -> None:
    with pytest.raises(AuthFailed, match=rule):
        read_grant(answer)


class FakeFetcher:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def get_json(self, url: str) -> Any:
        return self._answer(url)

    async def post_json(self, url: str, document: Any) -> Any:
        return self._answer((url, document))

    def _answer(self, asked: Any) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def auth(fetcher: FakeFetcher, *addresses: str, method: str = "get") -> Auth:
    loop: Any = SimpleNamespace(create_task=lambda work: asyncio.create_task(work))
    dice = random.Random()
    return Auth(addresses, method, fetcher, lambda: None, loop, dice)  # type: ignore[arg-type]


def test_get_and_post() -> None:
    fetcher = FakeFetcher(GOOD, GOOD)
    asyncio.run(auth(fetcher, "h:1").query(WHO))
    asyncio.run(auth(fetcher, "https://h/x", method="post").query(WHO._replace(tls=True)))
    query = "common_name=&remote_ip=127.0.0.1&secret=s%26c+r%FF%3D&tls=false"
    document = {
        "common_name": [""],
        "remote_ip": ["127.0.0.1"],
        "secret": ["s&c r\ufffd="],
        "tls": ["true"],
    }
    assert fetcher.asked == [f"http://h:1/auth?{query}", ("https://h/x", document)]


def test_servers_are_asked_in_turn_from_a_random_one_on() -> None:
    first = set()
    for _ in range(60):
        fetcher = FakeFetcher(FetchFailed("http://x", "no"), {"ttl": 0}, GOOD)
        asyncio.run(auth(fetcher, "a:1", "b:2", "c:3").query(WHO))
        hosts = "".join(url.removeprefix("http://")[0] for url in fetcher.asked)
        assert hosts in "abcab"
        first.add(hosts[0])
    assert first == {"a", "b", "c"}


def test_a_total_failure_is_logged_without_secrets() -> None:
    bad = entry(topic="(")
    fetcher = FakeFetcher(FetchFailed("http://a:1/auth", "timed out"), bad)
    with pytest.raises(AuthFailed) as caught:
        asyncio.run(auth(fetcher, "http://u:pass@a:1/auth?k=v", "http://u:pass@a:1/x").query(WHO))
    text = str(caught.value)
    assert "failed to auth against http://a:1/auth: timed out" in text
    assert "unable to compile topic" in text
    assert "pass" not in text
    assert "s&c" not in repr(WHO)


def test_faults_and_a_stop_reach_waiting_clients(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(fetcher: FakeFetcher, stops: bool) -> Any:
        found: list[Any] = []
        asking = auth(fetcher, "a:1")
        asking.ask(WHO, found.append)
        await asyncio.sleep(0)
        if stops:
            await asking.stop()
        while not found:
            await asyncio.sleep(0)
        return found[0]

    fault = asyncio.run(ask(FakeFetcher(RuntimeError("with a secret in it")), False))
    assert isinstance(fault, AuthFailed)
    assert "secret" not in str(fault) + caplog.text
    assert isinstance(asyncio.run(ask(FakeFetcher(GOOD), False)).identity, str)

    class Silent(FakeFetcher):
        async def get_json(self, url: str) -> Any:
            await asyncio.Event().wait()

    assert isinstance(asyncio.run(ask(Silent(), True)), AuthFailed)


# --- clients that have to authenticate, and a real HTTP auth server ---


FAILED = error(b"E_AUTH_FAILED AUTH failed")


server = served(AuthServer, scope="module")


@pytest.fixture(scope="module")
def guarded(server: AuthServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("guarded")
    with Running(path, f"--auth-http-address={server.address}") as running:
        yield running


def auth_clients(secret: str) -> bytes:
    return b"AUTH\n" + frames.with_size(secret.encode())


def authed(nsqd: Running, secret: str = "all") -> V2:
    client = nsqd.client()
    frame = client.ask(auth_clients(secret))
    assert frame.data.startswith(b'{"identity":'), frame
    return client


# What is refused without AUTH stands in `tests/conformance/tcp.toml`.
REFUSALS = [
    (None, auth_clients("x" * 65_537), b"E_BAD_BODY AUTH body too big 65537 > 65536"),
    (None, auth_clients("stranger"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth_clients("ttl"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth_clients("none"), b"E_UNAUTHORIZED AUTH no authorizations found"),
    ("all", auth_clients("all"), b"E_INVALID AUTH already set"),
    # not permitted
    ("mine", pub("t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("mine", mpub("t", [b"x"]), b'E_UNAUTHORIZED AUTH failed for MPUB on "t" ""'),
    ("mine", dpub("t", 5, b"x"), b'E_UNAUTHORIZED AUTH failed for DPUB on "t" ""'),
    ("mine", b"SUB t c\n", b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'),
    ("reads", pub("t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("channel", pub("t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("channel", b"SUB t d\n", b'E_UNAUTHORIZED AUTH failed for SUB on "t" "d"'),
]


@each(("secret", "sent", "expected"), REFUSALS)
def test_refusals(guarded: Running, secret: str | None, sent: bytes, expected: bytes) -> None:
    with guarded.client() if secret is None else authed(guarded, secret) as client:
        assert client.ask(sent) == error(expected)
        assert client.is_closed()
    assert "t" not in guarded.daemon.broker.topics


def test_permitted_commands(guarded: Running) -> None:
    with authed(guarded, "mine") as client:
        for sent in (pub("mine1", b"x"), mpub("mine2", [b"x", b"y"]), dpub("mine3", 0, b"x")):
            assert client.ask(sent) == ok()
        assert client.ask(pub("mine1", b"y") + b"SUB mine1 c\n") == ok()
        assert client.read() == ok()
        client.send(b"RDY 5\n")
        assert {client.message().body, client.message().body} == {b"x", b"y"}
    with authed(guarded, "reads") as client:
        assert client.ask(b"SUB mine1 other\n") == ok()


def test_stats_name_the_client(guarded: Running) -> None:
    with authed(guarded) as client, authed(guarded, "mine") as nobody:
        assert client.ask(b"SUB seen c\n") == ok()
        assert nobody.ask(b"SUB mine9 c\n") == ok()
        (row,) = guarded.channel("seen", "c")["clients"]
        found = {key: row[key] for key in row if key.startswith("auth")}
        assert found == {"authed": True, "auth_identity": "u", "auth_identity_url": "http://id"}
        (row,) = guarded.channel("mine9", "c")["clients"]
        assert {key: row[key] for key in row if key.startswith("auth")} == {"authed": True}


def test_a_failing_auth_server_disconnects_the_client(server: AuthServer, guarded: Running) -> None:
    def end_ttl() -> None:
        """As the timer does it, without the wait."""
        for session in guarded.daemon.protocol.sessions.values():
            session.drop_grant_timer()
            session._end_grant()

    with authed(guarded) as client, authed(guarded) as consumer:
        assert consumer.ask(b"SUB cut c\n") == ok()
        guarded.call(end_ttl)
        server.fails = True
        try:
            assert client.ask(pub("cut", b"x")) == FAILED
            assert client.is_closed()
        finally:
            server.fails = False
        consumer.send(b"RDY 1\n")  # what has been granted is not cut off
        assert guarded.request("POST", "/pub?topic=cut", b"x").status == 200
        consumer.send(b"FIN %b\n" % consumer.message().id)


def test_a_real_ttl(server: AuthServer, guarded: Running) -> None:
    with authed(guarded, "short") as client:
        assert client.ask(pub("ttl", b"x")) == ok()
        count = len(server.asked)
        host, port = client.socket.getsockname()
        sessions = guarded.call(lambda: list(guarded.daemon.protocol.sessions.values()))
        (session,) = (one for one in sessions if one.remote == f"{host}:{port}")
        eventually(lambda: guarded.call(lambda: session.grant_has_ended))
        assert guarded.call(lambda: session.conn.allowed) == set()
        assert client.ask(pub("ttl", b"x")) == ok()
        assert len(server.asked) == count + 1


def test_a_client_that_leaves_during_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        flags = (f"--auth-http-address={address}", "--http-client-request-timeout=300ms")
        with Running(tmp_path, *flags) as nsqd:
            with nsqd.client() as client:
                client.send(auth_clients("s3cret") + b"NOP\n")
                asked, _ = silent.accept()
                asked.recv(1000)
                # The loop is alive.
                assert nsqd.answer_to(b"FOO\n") == error(b"E_INVALID invalid command FOO")
            assert nsqd.answer_to(auth_clients("s3cret")) == FAILED
            asked.close()
    assert "AUTH failed failed to auth against http://" in caplog.text
    assert "timed out" in caplog.text
    assert "s3cret" not in caplog.text


# --- authentication of clients with certificates, by auth servers with certificates ---


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_common_name_is_passed_on_and_a_403_leads_to_https(
    tmp_path: Path, certificates: Certificates, method: str
) -> None:
    with (
        AuthServer(certificates.server()) as secure,
        AuthServer(https_port=secure.port) as plain,
        Running(
            tmp_path / "data",
            *certificates.flags,
            f"--tls-root-ca-file={certificates.authority}",
            "--tls-client-auth-policy=require-verify",
            f"--auth-http-address={plain.address}",
            f"--auth-http-request-method={method}",
        ) as nsqd,
        Upgraded(nsqd.daemon.tcp_address.port, certificates.client("someone")) as client,
    ):
        client.command("AUTH", b"all")
        frame = client.frame()
        assert frame is not None
        assert frame.data.startswith(b'{"identity":"u"'), frame
        for server in (plain, secure):
            ((_, _, asked),) = server.asked
            assert (asked["common_name"], asked["tls"]) == (["someone"], ["true"])


def test_an_untrusted_auth_server_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    with (
        AuthServer(certificates.server()) as secure,
        Running(tmp_path / "data", f"--auth-http-address=https://{secure.address}/auth") as nsqd,
        nsqd.client() as client,
    ):
        assert client.ask(b"AUTH\n\0\0\0\3all").data == b"E_AUTH_FAILED AUTH failed"
        assert secure.asked == []


def test_the_file_of_authorities(tmp_path: Path, certificates: Certificates) -> None:
    assert client_context(read_options([], {})) is None
    for path in (tmp_path / "none", certificates.key):
        options = read_options([f"--tls-root-ca-file={path}"], {})
        with pytest.raises(ConfigError, match="tls-root-ca-file"):
            client_context(options)
