"""The client library and kill -9: what was answered arrives, and the rest is said to be unknown."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Consumer, Producer
from penstock.errors import ConnectionLost

from .daemon import Daemon

END_S_MAX = 120.0
QUICK: dict[str, Any] = {"reconnect_delay_s": 0.02, "reconnect_delay_max_s": 0.2}


def where(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


def start_again(daemon: Daemon) -> None:
    """On the ports it had, so that clients find it again."""
    daemon.flags += [
        f"--tcp-address=127.0.0.1:{daemon.tcp_port}",
        f"--http-address=127.0.0.1:{daemon.http_port}",
    ]
    daemon.start()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", "--durability=os") as daemon:
        yield daemon


@pytest.mark.parametrize("retry", [True, False])
async def test_kill_in_the_middle_of_publishing(daemon: Daemon, retry: bool) -> None:
    """With `retry` everything arrives, some of it twice perhaps. Without it everything that was
    answered OK arrives, and everything else said that it is unknown."""
    bodies = [b"%d" % number for number in range(60_000)]

    outcomes: list[Any] = []
    killed: list[int] = []

    def kill() -> None:
        killed.append(len(outcomes))
        daemon.kill()

    async def publish(producer: Producer) -> None:
        for begin in range(0, len(bodies), 500):
            window = [producer.pub("t", body) for body in bodies[begin : begin + 500]]
            outcomes.extend(await asyncio.gather(*window, return_exceptions=True))
            if len(outcomes) == 20_000:
                asyncio.get_running_loop().call_later(0.02, kill)
                asyncio.get_running_loop().call_later(0.3, start_again, daemon)

    async with Producer(where(daemon), retry=retry, **QUICK) as producer:
        await publish(producer)
    assert 20_000 <= killed[0] < len(bodies)
    answered = {body for body, o in zip(bodies, outcomes, strict=True) if o is None}
    unknown = [o for o in outcomes if o is not None]
    assert all(isinstance(o, ConnectionLost) for o in unknown)
    assert len(unknown) == 0 if retry else len(unknown) <= 500
    async with Consumer("t", "c", where(daemon), max_in_flight=1000) as consumer:
        seen: set[bytes] = set()
        async with asyncio.timeout(END_S_MAX):
            async for message in consumer:
                seen.add(message.body)
                message.fin()
                if seen >= answered:
                    break
