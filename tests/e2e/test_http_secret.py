"""An nsqd and an nsqlookupd that want a secret for changes over HTTP, and whoever changes them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import IdempotentProducer
from penstock.errors import BrokerRefused, PublishRefused
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.upstream import DaemonRefused, Upstream
from penstock.nsqdapi import calls
from penstock.spark.brokerapi import BrokerApi

from .daemon import Daemon
from .lookupd import Lookupd

SECRET = "a-secret-of-these-tests"


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def daemon(secret_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("guarded") / "data"
    with Daemon(path, "--durability=os", f"--http-secret-file={secret_file}") as running:
        yield running
        assert SECRET not in running.stderr()


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock.tools.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_the_command_line(daemon: Daemon, secret_file: Path) -> None:
    where = f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"
    refused = penstock("topic", "create", "t", where)
    assert refused.returncode == 1
    assert "401 SECRET_DENIED" in refused.stdout + refused.stderr
    done = penstock("topic", "create", "t", where, f"--http-secret-file={secret_file}")
    assert (done.returncode, done.stderr) == (0, "")
    assert daemon.topic_stats("t")["depth"] == 0
    missing = penstock("topic", "create", "t", where, f"--http-secret-file={secret_file}.none")
    assert missing.returncode == 1
    assert "http-secret-file" in missing.stderr
    assert penstock("stats", where).returncode == 0  # reading needs none


def test_the_idempotent_producer(daemon: Daemon) -> None:
    async def publish(secret: str) -> None:
        address = f"127.0.0.1:{daemon.http_port}"
        async with IdempotentProducer(address, http_secret=secret) as producer:
            assert SECRET not in repr(producer.options)
            await producer.pub("published", b"one")

    with pytest.raises(PublishRefused, match="401"):
        asyncio.run(publish(""))
    asyncio.run(publish(SECRET))
    assert daemon.topic_stats("published")["message_count"] == 1


def test_spark_and_pipelines_send_the_secret(daemon: Daemon, secret_file: Path) -> None:
    url = f"http://127.0.0.1:{daemon.http_port}"
    with BrokerApi(url) as api, pytest.raises(BrokerRefused) as raised:
        api.ask(calls.publish("_pipelines", b"{}"))
    assert raised.value.status == 401
    with BrokerApi(url, secret_file=str(secret_file)) as api:
        api.ask(calls.publish("_pipelines", b"{}"))
        assert list(api.positions(["_pipelines"]).topics) == ["_pipelines"]


def test_nsqadmin(daemon: Daemon, secret_file: Path, tmp_path: Path) -> None:
    async def create(lookupd: Lookupd, secret: str) -> None:
        fetcher = Fetcher()
        try:
            upstream = Upstream(fetcher, (), (), secret)
            assert SECRET not in repr(upstream)
            for port in (daemon.http_port, lookupd.http_port):
                await upstream.post(f"127.0.0.1:{port}", "/topic/create", {"topic": "made"})
        finally:
            await fetcher.close()

    with Lookupd(tmp_path / "lookupd", f"--http-secret-file={secret_file}") as lookupd:
        with pytest.raises(DaemonRefused, match="401"):
            asyncio.run(create(lookupd, ""))
        asyncio.run(create(lookupd, SECRET))
        assert lookupd.get("/topics") == {"topics": ["made"]}
    assert daemon.topic_stats("made")["depth"] == 0
