import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually, nsqd
from nsqadmin.official import Calls, Nsqd
from penstock.tools.nsq_stat import FIELDS, main, row_text
from penstock.tools.nsq_tail import Printer
from penstock.tools.utility import Stop

from .utilities import Utility, channel_row, http, is_done, publish, tcp, until, until_subscribed


def test_messages_as_they_come(daemon: Daemon, tmp_path: Path) -> None:
    flags = ["--topic=live", "--channel=c", tcp(daemon)]
    with Utility("nsq_tail", *flags, cwd=tmp_path) as tail:
        until_subscribed(daemon, "live")
        publish(daemon, "live", [b"one", b"two"])
        until(lambda: tail.out == b"one\ntwo\n", "two lines")
        until(lambda: is_done(daemon, "live", "c"), "both finished")
        client = channel_row(daemon, "live", "c")["clients"][0]
        assert client["user_agent"].startswith("nsq_tail/")
        assert tail.end(signal.SIGINT) == 0


def test_its_own_channel_is_ephemeral(daemon: Daemon, tmp_path: Path) -> None:
    daemon.post("/topic/create?topic=fleeting")
    with Utility("nsq_tail", "--topic=fleeting", tcp(daemon), cwd=tmp_path) as tail:
        until(lambda: b"#ephemeral" in daemon.http("GET", "/stats?topic=fleeting")[1], "a channel")
        assert tail.end() == 0
    until(lambda: b"#ephemeral" not in daemon.http("GET", "/stats?topic=fleeting")[1], "no channel")


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


class Closed:
    """The output when `head` has seen enough: a long line does not wait for the flush."""

    def write(self, line: bytes) -> None:
        raise BrokenPipeError


async def test_output_that_takes_no_more_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=Closed()))
    stop = Stop()
    printer = Printer(0, stop)
    assert not printer.write(b"one")
    assert stop.is_set()
    assert isinstance(stop.failure, BrokenPipeError)


# --- nsq_stat ---


@pytest.fixture(scope="module")
def daemons(daemons: list[Daemon]) -> list[Daemon]:
    for daemon in daemons:
        daemon.make("t", "c")
        publish(daemon, "t", [b"x"])
    return daemons


def test_a_row_has_rates_and_sums() -> None:
    before = {"depth": 100, "message_count": 1_000}
    now = dict(zip(FIELDS, (140, 30, 5, 6, 7, 8, 1_200, 2), strict=True))
    assert row_text(now, before, 2.0) == (
        "    100      80 |     140     110      30     5     6 | "
        "      7       8         1200       2"
    )


def test_rows_of_two_nodes(daemons: list[Daemon], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--topic=t", "--channel", "c", "-interval=20ms", "--count=26"]
    assert main([*flags, *map(http, daemons)]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith("------rate")]
    assert heads == [0, 27]  # again after 25 rows
    rows = [line for line in lines if "|" in line and "depth" not in line and "total" not in line]
    assert len(rows) == 26
    assert rows[0].split() == ["0", "0", "|", "2", "2", "0", "0", "0", "|", "0", "0", "2", "0"]


def test_rows_of_those_that_a_lookupd_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lookupd(tmp_path / "l") as lookupd, nsqd(tmp_path / "d", lookupd.address) as daemon:
        daemon.make("t", "c")
        publish(daemon, "t", [b"x"])
        eventually(lambda: lookupd.knows("t", daemon))
        lookupds = (f"--lookupd-http-address=127.0.0.1:{n}" for n in (1, lookupd.http_port))
        assert main(["--topic=t", "--channel=c", "--interval=20ms", "--count=1", *lookupds]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split()[3:5] == ["1", "1"]
    assert err.startswith("nsq_stat: WARNING: ")


def test_no_such_channel(daemons: list[Daemon], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic=t", "--channel=nope", *map(http, daemons)]) == 1
    assert capsys.readouterr().err == "nsq_stat: no nsqd has channel nope of topic t\n"


def test_a_foreign_server_is_left_out(
    daemons: list[Daemon], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Nsqd("nsqd1", Calls()) as other:
        monkeypatch.setattr(other, "answer", lambda *_: (200, {"topics": [{"name": "t"}]}))
        flags = ["--topic=t", "--channel=c", "--interval=20ms", "--count=1"]
        addresses = [*map(http, daemons), f"--nsqd-http-address={other.address}"]
        assert main([*flags, *addresses]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split()[3] == "2"
    assert f"nsq_stat: {other.address} does not answer as NSQ does" in err
