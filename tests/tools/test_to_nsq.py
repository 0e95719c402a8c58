import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from e2e.daemon import Daemon
from penstock.tools.to_nsq import Records

from .utilities import Utility, channel_row, tcp


def run(tmp_path: Path, data: bytes, *flags: str) -> tuple[int, str]:
    with Utility("to_nsq", *flags, cwd=tmp_path, stdin=True) as utility:
        assert utility.process.stdin is not None
        utility.process.stdin.write(data)
        utility.process.stdin.close()
        return utility.wait(), utility.err


def test_every_record_goes_to_every_nsqd(daemons: list[Daemon], tmp_path: Path) -> None:
    for daemon in daemons:
        daemon.make("all", "c")
    data = b"".join(b"record %d\n" % n for n in range(5_000)) + b"\n\nlast"
    code, err = run(tmp_path, data, "--topic=all", *map(tcp, daemons))
    assert (code, err) == (0, "")
    assert [channel_row(daemon, "all", "c")["depth"] for daemon in daemons] == [5_001, 5_001]


def test_what_is_refused_ends_it(daemons: list[Daemon], tmp_path: Path) -> None:
    code, err = run(tmp_path, b"x" * 2_000_000, "--topic=big", tcp(daemons[0]))
    assert code == 1
    assert err.endswith("message too big 2000000 > 1048576 (published before that: 0)\n")


def test_a_rate(daemons: list[Daemon], tmp_path: Path) -> None:
    daemons[0].make("slow", "c")
    began_s = time.monotonic()
    flags = ["--topic=slow", "--rate=20", "--delimiter=;", tcp(daemons[0])]
    code, _ = run(tmp_path, b"x;" * 9 + b"last", *flags)
    assert code == 0
    assert time.monotonic() - began_s >= 9 / 20
    assert channel_row(daemons[0], "slow", "c")["depth"] == 10


def test_a_signal_ends_it_while_the_input_is_silent(daemons: list[Daemon], tmp_path: Path) -> None:
    daemons[0].make("silent", "c")
    flags = ["--topic=silent", tcp(daemons[0])]
    with Utility("to_nsq", *flags, cwd=tmp_path, stdin=True) as utility:
        assert utility.process.stdin is not None
        utility.process.stdin.write(b"said\n")
        utility.process.stdin.flush()
        while not channel_row(daemons[0], "silent", "c")["depth"]:
            assert utility.process.poll() is None
        assert utility.end() == 0


@given(st.lists(st.binary(max_size=5).filter(lambda b: b"\n" not in b)), st.data())
def test_records_do_not_depend_on_the_pieces(records: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(records)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    reader = Records(b"\n")
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found + reader.feed(b"\n") == [record for record in records if record]


def test_a_long_record_costs_what_it_is_long() -> None:
    reader, piece, count = Records(b"\n"), b"x" * 4096, 8_000
    began_s = time.process_time()
    for _ in range(count):
        assert reader.feed(piece) == []
    assert list(map(len, reader.feed(b"\n"))) == [len(piece) * count]
    assert time.process_time() - began_s < 3
