"""What an auth server is asked, and which answers count."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.errors import AuthFailed, FetchFailed
from penstock.nsqd.auth import Applicant, Auth, read_grant

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
def test_what_it_allows(changed: dict[str, Any], subscribes: bool, publishes: bool) -> None:
    grant = read_grant(entry(**changed))
    assert grant.allows("t", "c") == subscribes
    assert grant.allows("t") == publishes


def test_any_entry_may_allow_but_none_lends_to_another() -> None:
    halves = [ENTRY | {"topic": "^a$", "permissions": ["publish"]},
              ENTRY | {"topic": "^b$", "permissions": ["subscribe"]}]  # fmt: skip
    grant = read_grant(GOOD | {"authorizations": halves})
    assert (grant.allows("a"), grant.allows("b")) == (True, False)
    assert (grant.allows("a", "c"), grant.allows("b", "c")) == (False, True)


@each(
    ("answer", "rule"),
    [
        ([], "the answer is no object"),
        (None, "invalid TTL 0"),
        ({}, "invalid TTL 0"),
        (GOOD | {"ttl": 0}, "invalid TTL 0"),
        (GOOD | {"ttl": -5}, "invalid TTL -5"),
        (GOOD | {"ttl": 1.5}, "ttl has the wrong type"),
        (GOOD | {"ttl": "60"}, "ttl has the wrong type"),
        (GOOD | {"ttl": True}, "ttl has the wrong type"),
        (GOOD | {"identity": 1}, "identity has the wrong type"),
        (GOOD | {"authorizations": {}}, "authorizations is no list"),
        (GOOD | {"authorizations": ["x"]}, "an authorization is no object"),
        (entry(permissions="publish"), "permissions is no list"),
        (entry(permissions=["admin"]), "unknown permission 'admin'"),
        (entry(permissions=["Publish"]), "unknown permission 'Publish'"),
        (entry(permissions=[1]), "a permission has the wrong type"),
        (entry(topic="("), r"unable to compile topic '\('"),
        (entry(topic=1), "topic has the wrong type"),
        (entry(channels=["a", "*"]), r"unable to compile channel '\*'"),
        (entry(channels=["(?=x)"]), "unable to compile channel"),
        (entry(channels="x"), "channels is no list"),
        (entry(channels=["x"] * 10_000), "more than 10000 patterns"),
    ],
)
def test_what_is_no_answer(answer: Any, rule: str) -> None:
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


def test_when_none_answers_the_log_learns_why_but_no_secret() -> None:
    bad = entry(topic="(")
    fetcher = FakeFetcher(FetchFailed("http://a:1/auth", "timed out"), bad)
    with pytest.raises(AuthFailed) as caught:
        asyncio.run(auth(fetcher, "http://u:pass@a:1/auth?k=v", "http://u:pass@a:1/x").query(WHO))
    text = str(caught.value)
    assert "failed to auth against http://a:1/auth: timed out" in text
    assert "unable to compile topic" in text
    assert "pass" not in text
    assert "s&c" not in repr(WHO)


def test_faults_and_a_stop_are_told_to_who_waits(caplog: pytest.LogCaptureFixture) -> None:
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
