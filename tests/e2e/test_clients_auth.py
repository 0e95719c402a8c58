"""pynsq and nsqjs with a secret, in front of an auth server.

ansq does not note that it was let in, and refuses to go on by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nsqd.test_auth_clients import AuthServer

from .daemon import Daemon
from .test_clients import PUBLISHED, Child, consumer, deliveries, wait_for_consumers

SECRETS = {"pynsq": "auth_secret", "nsqjs": "authSecret"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("auth") / "data"
    with (
        AuthServer() as server,
        Daemon(path, f"--auth-http-address={server.address}") as daemon,
    ):
        yield daemon


@pytest.mark.parametrize("library", ["pynsq", "nsqjs"])
def test_who_knows_the_secret_publishes_and_consumes(daemon: Daemon, library: str) -> None:
    topic = f"{library}.secret"
    options = {SECRETS[library]: "all"}
    count = len(PUBLISHED)
    with consumer(daemon, library, topic, count, max_in_flight=20, connection=options) as child:
        wait_for_consumers(daemon, topic, "chan")
        assert daemon.channel_stats(topic, "chan")["clients"][0]["authed"] is True
        arguments = (str(daemon.tcp_port), topic, json.dumps(options))
        with Child(f"{library}_producer", *arguments) as producer:
            assert producer.lines()[0] == ["OK"] * 103
        assert sorted(body for body, _ in deliveries(child.lines())) == PUBLISHED


def test_who_does_not_is_told_and_hung_up_on(daemon: Daemon) -> None:
    arguments = (str(daemon.tcp_port), "refused", json.dumps({"authSecret": "wrong"}))
    with Child("nsqjs_producer", *arguments) as child:
        _, err = child.process.communicate(timeout=90)
        assert child.process.returncode == 1
    assert "E_AUTH_FAILED AUTH failed" in err
