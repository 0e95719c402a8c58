import re
import signal
import subprocess
import sys

import pytest

from cases import each
from e2e.daemon import Daemon
from penstock import __version__
from penstock.errors import ConfigError
from penstock.net.listener import ListenAddress
from penstock.nsqd.options import default_node_id, read_options

from .world import V2, mpub, ok


def test_the_node_id_is_the_one_that_nsqd_would_choose() -> None:
    # crc32 of the 16 bytes of md5 of the name, modulo 1024
    assert default_node_id("localhost") == 16
    assert default_node_id("localhost") != default_node_id("other")


@each(
    "argument",
    [
        "-max-rdy-count=0",
        "-msg-timeout=0s",
        "-sync-every=0",
        "-segment-bytes=1",
        "-max-msg-size=0",
        "-broadcast-tcp-port=65536",
        "-retain-bytes=-1",
        "-trace-rate=1.5",
        "-default-partitions=0",
        "-default-partitions=256",
    ],
)
def test_values_out_of_range(argument: str) -> None:
    name = argument[1:].split("=")[0]
    with pytest.raises(ConfigError) as caught:
        read_options([argument], {})
    assert caught.value.name == name


@pytest.mark.parametrize("value", ["0", "1.01", "-0.5", "nan"])
def test_percentiles_outside_their_range_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"e2e-processing-latency-percentile.*above 0"):
        read_options([f"-e2e-processing-latency-percentile=0.9,{value}"], {})


# --- the executable as a process: an orderly end, and one message all the way ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_message_all_the_way_and_an_orderly_end(daemon: Daemon, number: int) -> None:
    with V2(ListenAddress("127.0.0.1", daemon.tcp_port, "")) as client:
        client.send(mpub("e2e", [b"one", b"two"]) + b"SUB e2e c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        message = client.message()
        assert message.body == b"one"
        client.send(b"FIN %b\n" % message.id)
        assert client.message().body == b"two"
        daemon.signal(number)
        assert daemon.wait() == 0
    log = daemon.stderr()
    assert re.search(rf"INFO: nsqd v{re.escape(__version__)} \(built w/", log)
    assert re.search(r"INFO: ID: \d+$", log, re.MULTILINE)
    assert "TOPIC(e2e): created" in log
    assert "TOPIC(e2e): new channel(c)" in log
    assert log.rstrip().endswith("INFO: NSQ: bye")


def test_version_and_help() -> None:
    def printed(flag: str) -> str:
        command = [sys.executable, "-m", "penstock.nsqd.main", flag]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    version = printed("--version")
    assert re.fullmatch(rf"nsqd v{re.escape(__version__)} \(built w/python[\d.]+\S*\)\n", version)
    assert "-tcp-address string" in (text := printed("-help"))
    assert "loopback" in text
