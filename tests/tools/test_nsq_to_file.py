import gzip
import signal
from functools import partial
from pathlib import Path

from e2e.daemon import Daemon

from .utilities import Utility, channel_row, is_done, publish, tcp, until, until_subscribed


def archiving(daemon: Daemon, path: Path, topic: str, *more: str) -> Utility:
    """Into files in `path` / "out"."""
    flags = [f"--topic={topic}", "--channel=c", f"--output-dir={path / 'out'}"]
    flags += ["--host-identifier=box", "--datetime-format=day", tcp(daemon), *more]
    return Utility("nsq_to_file", *flags, cwd=path)


def bodies(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


def lines(path: Path) -> list[bytes]:
    found: list[bytes] = []
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        found += (gzip.decompress(data) if file.suffix == ".gz" else data).splitlines()
    return found


def test_nothing_is_finished_before_its_sync(daemon: Daemon, tmp_path: Path) -> None:
    more = "--sync-interval=1h", "--max-in-flight=100"
    with archiving(daemon, tmp_path, "unsafe", *more) as archiver:
        until_subscribed(daemon, "unsafe")
        publish(daemon, "unsafe", bodies(51))
        # The first message of a file is synced at once; the others wait for an hour to pass.
        until(lambda: channel_row(daemon, "unsafe", "c")["in_flight_count"] == 50, "fifty waiting")
        publish(daemon, "unsafe", bodies(50))
        until(lambda: is_done(daemon, "unsafe", "c"), "as many wait as may be in flight")
        publish(daemon, "unsafe", bodies(7))
        until(lambda: channel_row(daemon, "unsafe", "c")["in_flight_count"] == 7, "seven waiting")
        assert archiver.end() == 0
    until(lambda: is_done(daemon, "unsafe", "c"), "the stop made them safe")
    assert len(lines(tmp_path / "out")) == 108


def test_sighup_goes_on_in_a_new_file(daemon: Daemon, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with archiving(daemon, tmp_path, "hup", "--gzip", "--sync-interval=1h") as archiver:
        until_subscribed(daemon, "hup")
        publish(daemon, "hup", bodies(5))
        until(lambda: channel_row(daemon, "hup", "c")["in_flight_count"] == 4, "four waiting")
        archiver.process.send_signal(signal.SIGHUP)
        until(lambda: is_done(daemon, "hup", "c"), "finished by the signal")
        publish(daemon, "hup", [b"later"])
        until(lambda: is_done(daemon, "hup", "c"), "the first of the new file")
        assert archiver.end() == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "hup.box-000000.day.log.gz",
        "hup.box-000001.day.log.gz",
    ]
    assert sorted(lines(out)) == sorted([*bodies(5), b"later"])


def test_kill_9_loses_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """What was not in a synced file comes again: nothing is missing, some may be there twice."""
    publish(daemon, "crash", bodies(2_000))
    more = "--sync-interval=50ms", "--consumer-opt=msg_timeout,1s"
    with archiving(daemon, tmp_path, "crash", *more) as first:
        row = partial(channel_row, daemon, "crash", "c")
        until(lambda: row().get("depth", 2_000) < 1_800, "some archived")
        first.end(signal.SIGKILL)
    with archiving(daemon, tmp_path, "crash", *more) as second:
        until(lambda: is_done(daemon, "crash", "c"), "all finished")
        assert second.end() == 0
    assert set(bodies(2_000)) <= set(lines(tmp_path / "out"))


def test_a_disk_that_fails_ends_it(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "out" / "fail.box.day.log").mkdir(parents=True)  # where the file is to be
    publish(daemon, "fail", [b"x"])
    with archiving(daemon, tmp_path, "fail") as archiver:
        assert archiver.wait() == 1
        assert "fail.box.day.log" in archiver.err.splitlines()[-1]
    assert not is_done(daemon, "fail", "c")
