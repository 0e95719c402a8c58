from __future__ import annotations

import signal
from pathlib import Path

from e2e.daemon import Daemon

from .utilities import Utility, ask, channel_row, is_done, publish, tcp, until


def test_messages_as_they_come(daemon: Daemon, tmp_path: Path) -> None:
    flags = ["--topic=live", "--channel=c", tcp(daemon)]
    with Utility("nsq_tail", *flags, cwd=tmp_path) as tail:
        until(lambda: channel_row(daemon, "live", "c").get("client_count"), "a subscription")
        publish(daemon, "live", [b"one", b"two"])
        until(lambda: tail.out == b"one\ntwo\n", "two lines")
        until(lambda: is_done(daemon, "live", "c"), "both finished")
        client = channel_row(daemon, "live", "c")["clients"][0]
        assert client["user_agent"].startswith("nsq_tail/")
        assert tail.end(signal.SIGINT) == 0


def test_its_own_channel_is_ephemeral(daemon: Daemon, tmp_path: Path) -> None:
    ask(daemon, "/topic/create?topic=fleeting", b"")
    with Utility("nsq_tail", "--topic=fleeting", tcp(daemon), cwd=tmp_path) as tail:
        until(lambda: b"#ephemeral" in ask(daemon, "/stats?topic=fleeting"), "a channel")
        assert tail.end() == 0
    until(lambda: b"#ephemeral" not in ask(daemon, "/stats?topic=fleeting"), "no channel")


def test_so_many_of_several_topics(daemon: Daemon, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        publish(daemon, topic, [f"{topic}{n}".encode() for n in range(50)])
    flags = ["--topic=a", "--topic=b", "--channel=c", "--print-topic", "-n", "80", tcp(daemon)]
    with Utility("nsq_tail", *flags, cwd=tmp_path) as tail:
        assert tail.wait() == 0
        lines = tail.out.splitlines()
    assert len(set(lines)) == 80
    assert {line.partition(b" | ")[0] for line in lines} == {b"a", b"b"}
    assert b"a | a0" in lines

    def left() -> int:
        rows = [channel_row(daemon, topic, "c") for topic in ("a", "b")]
        return sum(row["depth"] + row["in_flight_count"] for row in rows)

    until(lambda: left() == 20, "what was not printed is still there, what was is finished")
