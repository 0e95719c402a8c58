import random
from collections import Counter
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import pytest

from e2e.answering import Answer, Answering, served
from e2e.daemon import Daemon
from penstock import limits
from penstock.tools.hostpool import HostPool

from .utilities import Clock, Utility, channel_row, finish, is_done, publish, tcp, until


class Server(Answering):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.seen.append(unquote_to_bytes(urlsplit(path).query) if method == "GET" else body)
        self.headers.append(headers)
        return self.status, b"", {}


server = second = served(Server)


QUICK = ("--status-every=1", "--consumer-opt=default_requeue_delay,10ms",
         "--consumer-opt=backoff_multiplier,10ms")  # fmt: skip
BODIES = [b"message %d" % number for number in range(300)]


def test_each_body_is_posted(daemon: Daemon, server: Server, tmp_path: Path) -> None:
    publish(daemon, "posted", BODIES)
    more = [f"--post={server.url}/in", "--header=X-Team: pay, ments", "--content-type=text/plain"]
    output = finish("nsq_to_http", daemon, "posted", *more, cwd=tmp_path)
    assert "finished 250" in output  # --status-every
    assert Counter(server.seen) == Counter(BODIES)
    assert server.headers[0]["X-Team"] == "pay, ments"
    assert server.headers[0]["Content-Type"] == "text/plain"
    assert server.headers[0]["User-Agent"].startswith("nsq_to_http/")


def test_each_body_is_in_the_url(daemon: Daemon, server: Server, tmp_path: Path) -> None:
    odd = b"a b+c&c=%d/?%2B\xff\xc3\xa9"
    publish(daemon, "got", [odd])
    more = [f"--get={server.url}/in?%s", "--header=user-agent: mine"]
    finish("nsq_to_http", daemon, "got", *more, cwd=tmp_path)
    assert server.seen == [odd]
    assert server.headers[0]["user-agent"] == "mine"


@pytest.mark.parametrize(("method", "status"), [("post", 500), ("post", 302), ("get", 201)])
def test_a_refused_request_is_retried_and_no_password_is_logged(
    daemon: Daemon, server: Server, tmp_path: Path, method: str, status: int
) -> None:
    topic = f"refused{method}{status}"
    server.status = status
    publish(daemon, topic, [b"x"])
    address = server.url.replace("//", "//user:hidden@")
    target = f"--{method}={address}/in" + ("?%s" if method == "get" else "")
    flags = [f"--topic={topic}", "--channel=c", tcp(daemon), target, *QUICK]
    with Utility("nsq_to_http", *flags, cwd=tmp_path) as utility:
        until(lambda: len(server.seen) >= 2, "a second try")
        assert channel_row(daemon, topic, "c")["requeue_count"] >= 1
        server.status = 200
        until(lambda: is_done(daemon, topic, "c"), "taken in the end")
        assert utility.end() == 0
        for output in (f": got response {status}", "goes back", "finished 1"):
            assert output in utility.err
        for unsaid in ("Traceback", "hidden"):
            assert unsaid not in utility.err
    assert server.headers[0]["Authorization"].startswith("Basic ")


def test_a_server_that_is_away_is_left_alone(
    daemon: Daemon, server: Server, second: Server, tmp_path: Path
) -> None:
    publish(daemon, "pool", BODIES)
    more = [f"--post={server.url}", "--post=http://127.0.0.1:1", f"--post={second.url}"]
    more += ["--n=4", *QUICK]
    finish("nsq_to_http", daemon, "pool", *more, cwd=tmp_path)
    assert channel_row(daemon, "pool", "c")["requeue_count"] <= 4
    assert Counter(server.seen + second.seen) == Counter(BODIES)
    assert min(len(server.seen), len(second.seen)) > 100


def test_to_all(daemon: Daemon, server: Server, second: Server, tmp_path: Path) -> None:
    publish(daemon, "both", BODIES[:50])
    more = [f"--post={server.url}", f"--post={second.url}", "--mode=all"]
    finish("nsq_to_http", daemon, "both", *more, cwd=tmp_path)
    assert Counter(server.seen) == Counter(second.seen) == Counter(BODIES[:50])


# --- which of several hosts is taken ---


S = limits.SECOND


def pool(clock: Clock, mode: str = "hostpool", count: int = 3) -> HostPool:
    return HostPool([f"h{n}" for n in range(count)], mode, clock, random.Random(1))


def taken(hosts: HostPool, count: int) -> list[str]:
    return [hosts.take().address for _ in range(count)]


@pytest.mark.parametrize("mode", ["hostpool", "round-robin"])
def test_one_after_the_other(mode: str) -> None:
    assert taken(pool(Clock(), mode), 4) == ["h0", "h1", "h2", "h0"]


def test_a_dead_one_rests_and_longer_each_time() -> None:
    clock = Clock()
    hosts = pool(clock, count=2)
    dead = hosts.hosts[0]
    for rest in (30, 60, 120, 240, 480, 900, 900):
        hosts.failed(dead)
        assert set(taken(hosts, 4)) == {"h1"}
        clock.now_ns += rest * S - 1
        assert set(taken(hosts, 4)) == {"h1"}
        clock.now_ns += 1
        assert set(taken(hosts, 4)) == {"h0", "h1"}
    hosts.succeeded(dead, 5)
    hosts.failed(dead)
    clock.now_ns += 30 * S
    assert set(taken(hosts, 4)) == {"h0", "h1"}


def test_when_all_are_dead_the_first_to_come_back_is_tried() -> None:
    clock = Clock()
    hosts = pool(clock, count=2)
    hosts.failed(hosts.hosts[1])
    clock.now_ns += S
    hosts.failed(hosts.hosts[0])
    assert taken(hosts, 2) == ["h1", "h1"]


def test_greedy_takes_the_quickest_and_looks_at_the_others_now_and_then() -> None:
    hosts = pool(Clock(), "epsilon-greedy")
    times = {"h0": 50 * limits.MS, "h1": 2 * limits.MS, "h2": 30 * limits.MS}
    seen: Counter[str] = Counter()
    for _ in range(2_000):
        host = hosts.take()
        seen[host.address] += 1
        hosts.succeeded(host, times[host.address])
    assert seen["h1"] > 1_900
    assert min(seen["h0"], seen["h2"]) >= 2


def test_greedy_notices_a_change() -> None:
    hosts = pool(Clock(), "epsilon-greedy", 2)
    times = {"h0": limits.MS, "h1": 20 * limits.MS}
    for _ in range(100):
        host = hosts.take()
        hosts.succeeded(host, times[host.address])
    times["h0"] = 500 * limits.MS
    late = []
    for _ in range(200):
        host = hosts.take()
        late.append(host.address)
        hosts.succeeded(host, times[host.address])
    assert Counter(late[50:])["h1"] > 140
