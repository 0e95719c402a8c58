"""Conformance of the V2 protocol, byte by byte, over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import __version__
from penstock.errors import Refused, StorageError, WriteRefused
from penstock.kernel import BadPub, Verb
from penstock.log.partition import PartitionLog
from penstock.nsqd.pubfaults import bad_pub
from penstock.wire import frames
from penstock.wire.errors import reason_of
from penstock.wire.frames import Frame

from .world import V2, Running, dpub, error, eventually, mpub, ok, pub, u32

ID = b"0123456789abcdef"
LONG = b"x" * 65
SUB = b"SUB conform c\n"

IDENTIFY = b"IDENTIFY\n" + frames.with_size(b"{}")
AUTH = b"AUTH\n" + frames.with_size(b"secret")
WRONG_STATE = {
    "init": [b"RDY 1\n", b"FIN %b\n" % ID, b"REQ %b 0\n" % ID, b"TOUCH %b\n" % ID, b"CLS\n"],
    "subscribed": [IDENTIFY, AUTH, SUB],
    "closing": [IDENTIFY, AUTH, SUB, b"CLS\n"],
}


@pytest.fixture
def client(nsqd: Running) -> Iterator[V2]:
    with nsqd.client() as connected:
        yield connected


def bring_to(client: V2, state: str) -> None:
    if state != "init":
        assert client.ask(SUB) == ok()
    if state == "closing":
        assert client.ask(b"CLS\n") == ok(b"CLOSE_WAIT")


@pytest.mark.parametrize(
    ("state", "command"),
    [(state, command) for state, commands in WRONG_STATE.items() for command in commands],
)
def test_a_command_in_the_wrong_state_is_fatal(client: V2, state: str, command: bytes) -> None:
    bring_to(client, state)
    verb = command.split()[0]
    assert client.ask(command) == error(b"E_INVALID cannot %b in current state" % verb)
    assert client.is_closed()


def not_in_flight(verb: bytes) -> Frame:
    return error(b"E_%b_FAILED %b %b failed ID not in flight" % (verb, verb, ID))


@pytest.mark.parametrize("state", ["init", "subscribed", "closing"])
def test_commands_that_every_state_takes(client: V2, state: str) -> None:
    bring_to(client, state)
    client.send(b"NOP\n")
    for command in (pub(b"any", b"x"), mpub(b"any", [b"x", b"y"]), dpub(b"any", 0, b"x")):
        assert client.ask(command) == ok()


@pytest.mark.parametrize("state", ["subscribed", "closing"])
def test_settling_is_never_fatal(client: V2, state: str) -> None:
    bring_to(client, state)
    for command in (b"FIN %b\n" % ID, b"REQ %b 0\n" % ID, b"TOUCH %b\n" % ID):
        assert client.ask(command) == not_in_flight(command.split()[0])
    assert client.ask(b"FIN zzzzzzzzzzzzzzzz\n") == error(
        b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz failed ID not in flight"
    )
    assert client.ask(pub(b"any", b"still here")) == ok()


def test_rdy_while_closing_is_ignored(client: V2) -> None:
    bring_to(client, "closing")
    client.send(b"RDY 1\nRDY nonsense\n")
    assert client.ask(pub(b"any", b"x")) == ok()


def name_fault(code: bytes, text: bytes) -> bytes:
    return b"%b %b is not valid" % (code, text)


FATAL = [
    # commands
    ("init", b"\n", b"E_INVALID invalid command "),
    ("init", b"BLAH\n", b"E_INVALID invalid command BLAH"),
    ("init", b"sub t c\n", b"E_INVALID invalid command sub"),
    ("init", b" SUB t c\n", b"E_INVALID invalid command "),
    ("init", b"PUBX t\n", b"E_INVALID invalid command PUBX"),
    ("init", b"BL\xffAH x\r\n", b"E_INVALID invalid command BL\xffAH"),
    # SUB
    ("init", b"SUB\n", b"E_INVALID SUB insufficient number of parameters"),
    ("init", b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
    ("init", b"SUB  c\n", b'E_BAD_TOPIC SUB topic name "" is not valid'),
    ("init", b'SUB t"x c\n', b'E_BAD_TOPIC SUB topic name "t\\"x" is not valid'),
    ("init", b"SUB t\xff c\n", b'E_BAD_TOPIC SUB topic name "t\\xff" is not valid'),
    ("init", b"SUB t c$\n", b'E_BAD_CHANNEL SUB channel name "c$" is not valid'),
    ("init", b"SUB t \n", b'E_BAD_CHANNEL SUB channel name "" is not valid'),
    ("init", b"SUB %b c\n" % LONG, b'E_BAD_TOPIC SUB topic name "%b" is not valid' % LONG),
    # RDY
    ("subscribed", b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
    ("subscribed", b"RDY -1\n", b"E_INVALID RDY could not parse count -1"),
    ("subscribed", b"RDY 0x1\n", b"E_INVALID RDY could not parse count 0x1"),
    ("subscribed", b"RDY 1a\n", b"E_INVALID RDY could not parse count 1a"),
    # FIN, REQ, TOUCH
    ("subscribed", b"FIN\n", b"E_INVALID FIN insufficient number of params"),
    ("subscribed", b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
    ("subscribed", b"REQ\n", b"E_INVALID REQ insufficient number of params"),
    ("subscribed", b"REQ %b\n" % ID, b"E_INVALID REQ insufficient number of params"),
    ("subscribed", b"FIN short\n", b"E_INVALID invalid message ID"),
    ("subscribed", b"FIN %bx\n" % ID, b"E_INVALID invalid message ID"),
    ("subscribed", b"TOUCH short\n", b"E_INVALID invalid message ID"),
    ("subscribed", b"REQ short x\n", b"E_INVALID invalid message ID"),
    ("subscribed", b"REQ %b x\n" % ID, b"E_INVALID REQ could not parse timeout x"),
    ("subscribed", b"REQ %b -5\n" % ID, b"E_INVALID REQ could not parse timeout -5"),
    ("closing", b"FIN short\n", b"E_INVALID invalid message ID"),
    # AUTH
    ("init", b"AUTH x\n" + u32(1) + b"s", b"E_INVALID AUTH invalid number of parameters"),
    ("init", b"AUTH\n" + u32(0), b"E_BAD_BODY AUTH invalid body size 0"),
    ("init", b"AUTH\n" + u32(5242881), b"E_BAD_BODY AUTH body too big 5242881 > 5242880"),
    ("init", AUTH, b"E_AUTH_DISABLED AUTH disabled"),
    # IDENTIFY
    ("init", b"IDENTIFY\n" + u32(0), b"E_BAD_BODY IDENTIFY invalid body size 0"),
    ("init", b"IDENTIFY\n" + u32(-1), b"E_BAD_BODY IDENTIFY invalid body size -1"),
    (
        "init",
        b"IDENTIFY\n" + u32(9999999),
        b"E_BAD_BODY IDENTIFY body too big 9999999 > 5242880",
    ),
    (
        "init",
        b"IDENTIFY\n" + frames.with_size(b"{"),
        b"E_BAD_BODY IDENTIFY failed to decode JSON body",
    ),
    (
        "init",
        b"IDENTIFY\n" + frames.with_size(b'{"sample_rate":100}'),
        b"E_BAD_BODY IDENTIFY sample rate (100) is invalid",
    ),
    # PUB
    ("init", b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
    ("init", b"PUB \n" + u32(1) + b"x", b'E_BAD_TOPIC PUB topic name "" is not valid'),
    ("init", b"PUB a$\n", b'E_BAD_TOPIC PUB topic name "a$" is not valid'),
    ("init", b"PUB t\n" + u32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    ("init", b"PUB t\n" + u32(-1), b"E_BAD_MESSAGE PUB invalid message body size -1"),
    (
        "init",
        b"PUB t\n" + u32(1048577),
        b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576",
    ),
    # DPUB
    ("init", b"DPUB\n", b"E_INVALID DPUB insufficient number of parameters"),
    ("init", b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
    ("init", b"DPUB a$ x\n", b'E_BAD_TOPIC DPUB topic name "a$" is not valid'),
    ("init", b"DPUB t x\n", b"E_INVALID DPUB could not parse timeout x"),
    ("init", b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
    (
        "init",
        b"DPUB t 3600001\n",
        b"E_INVALID DPUB timeout 3600001 out of range 0-3600000",
    ),
    ("init", b"DPUB t 0\n" + u32(0), b"E_BAD_MESSAGE DPUB invalid message body size 0"),
    (
        "init",
        b"DPUB t 0\n" + u32(1048577),
        b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576",
    ),
    # MPUB
    ("init", b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
    ("init", b"MPUB a$\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a$" is not valid'),
    ("init", b"MPUB t\n" + u32(0), b"E_BAD_BODY MPUB invalid body size 0"),
    ("init", b"MPUB t\n" + u32(5242881), b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    ("init", b"MPUB t\n" + u32(8) + u32(0), b"E_BAD_BODY MPUB invalid message count 0"),
    (
        "init",
        b"MPUB t\n" + u32(8) + u32(1048576),
        b"E_BAD_BODY MPUB invalid message count 1048576",
    ),
    (
        "init",
        b"MPUB t\n" + u32(17) + u32(2) + u32(1) + b"x" + u32(0),
        b"E_BAD_MESSAGE MPUB invalid message(1) body size 0",
    ),
    (
        "init",
        b"MPUB t\n" + u32(17) + u32(1) + u32(1048577),
        b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576",
    ),
]


@pytest.mark.parametrize(("state", "command", "data"), FATAL)
def test_a_bad_value_is_fatal(client: V2, state: str, command: bytes, data: bytes) -> None:
    bring_to(client, state)
    assert client.ask(command) == error(data)
    assert client.is_closed()


def test_a_wrong_magic(nsqd: Running) -> None:
    with V2(nsqd.daemon.tcp_address, magic=b"GET ") as client:
        assert client.read() == error(b"E_BAD_PROTOCOL")
        assert client.is_closed()


def test_a_line_without_an_end_is_dropped_without_a_word(client: V2) -> None:
    client.send(b"x" * 16384)
    assert client.is_closed()


def test_bytes_one_by_one(client: V2) -> None:
    stream = b"SUB bytewise c\r\n" + pub(b"bytewise", b"hi") + b"RDY\nNOP\r\n"
    for position in range(len(stream)):
        client.send(stream[position : position + 1])
    assert [client.read(), client.read()] == [ok(), ok()]
    assert client.message().body == b"hi"


def test_answers_come_in_the_order_of_pipelined_commands(client: V2) -> None:
    client.send(
        pub(b"pipe", b"1")
        + IDENTIFY
        + mpub(b"pipe", [b"2", b"3"])
        + b"SUB pipe c\n"
        + dpub(b"pipe", 0, b"4")
        + b"RDY \nFIN short\n"
        + pub(b"pipe", b"never read")
    )
    assert [client.read() for _ in range(5)] == [ok()] * 5
    assert client.read() == error(b"E_INVALID invalid message ID")
    assert client.is_closed()


def test_trailing_parameters_are_ignored(client: V2) -> None:
    assert client.ask(b"PUB extra a b\n" + frames.with_size(b"x")) == ok()
    assert client.ask(b"SUB extra c d e\n") == ok()
    client.send(b"RDY 1 x\n")
    assert client.message().body == b"x"


def test_identify_answers(client: V2) -> None:
    assert client.ask(IDENTIFY) == ok()
    answer = json.loads(client.identify(feature_negotiation=True, msg_timeout=2000).data)
    assert list(answer.items()) == [
        ("max_rdy_count", 2500),
        ("version", __version__),
        ("max_msg_timeout", 900000),
        ("msg_timeout", 2000),
        ("tls_v1", False),
        ("deflate", False),
        ("deflate_level", 6),
        ("max_deflate_level", 6),
        ("snappy", False),
        ("sample_rate", 0),
        ("auth_required", False),
        ("output_buffer_size", 16384),
        ("output_buffer_timeout", 250),
        ("topology_region", ""),
        ("topology_zone", ""),
    ]


def test_a_message_is_delivered_finished_and_gone(client: V2, nsqd: Running) -> None:
    assert client.ask(pub(b"simple", b"body")) == ok()
    assert client.ask(b"SUB simple c\n") == ok()
    client.send(b"RDY 1\n")
    message = client.message()
    assert (message.attempts, message.body) == (1, b"body")
    client.send(b"FIN %b\n" % message.id)
    assert client.ask(b"FIN %b\n" % message.id) == error(
        b"E_FIN_FAILED FIN %b failed ID not in flight" % message.id
    )
    row = nsqd.channel("simple", "c")
    assert (row["depth"], row["in_flight_count"], row["clients"][0]["finish_count"]) == (0, 0, 1)


def test_another_client_does_not_own_the_message(client: V2, nsqd: Running) -> None:
    client.send(pub(b"owner", b"x") + b"SUB owner c\nRDY 1\n")
    assert [client.read(), client.read()] == [ok(), ok()]
    message_id = client.message().id
    with nsqd.client() as other:
        assert other.ask(b"SUB owner c\n") == ok()
        for verb, tail in ((b"FIN", b""), (b"REQ", b" 0"), (b"TOUCH", b"")):
            assert other.ask(b"%b %b%b\n" % (verb, message_id, tail)) == error(
                b"E_%b_FAILED %b %b failed client does not own message" % (verb, verb, message_id)
            )
        assert other.is_silent()


def test_req_requeues_at_once_or_after_a_while(client: V2) -> None:
    client.send(pub(b"requeue", b"x") + b"SUB requeue c\nRDY 1\n")
    assert [client.read(), client.read()] == [ok(), ok()]
    client.send(b"REQ %b 0\n" % client.message().id)
    message = client.message()
    assert message.attempts == 2
    began_s = time.monotonic()
    client.send(b"REQ %b 150\n" % message.id)
    assert client.message().attempts == 3
    assert time.monotonic() - began_s > 0.145


def test_a_huge_req_delay_is_clamped(client: V2, nsqd: Running) -> None:
    client.send(pub(b"clamped", b"x") + b"SUB clamped c\nRDY 1\n")
    assert [client.read(), client.read()] == [ok(), ok()]
    client.send(b"REQ %b 18446744073709551615\nNOP\n" % client.message().id)
    assert eventually(lambda: nsqd.channel("clamped", "c")["deferred_count"] == 1)


def test_dpub_waits(client: V2, nsqd: Running) -> None:
    began_s = time.monotonic()
    client.send(b"SUB later c\nRDY 1\n" + dpub(b"later", 1500, b"x"))
    assert [client.read(), client.read()] == [ok(), ok()]
    assert client.message().body == b"x"
    assert time.monotonic() - began_s > 1.45
    client.send(dpub(b"later", 600_000, b"y"))
    assert client.read() == ok()
    assert eventually(lambda: nsqd.channel("later", "c")["deferred_count"] == 1)


def test_after_cls_nothing_is_delivered_but_fin_is_taken(client: V2) -> None:
    client.send(mpub(b"cls", [b"1", b"2"]) + b"SUB cls c\nRDY 1\n")
    assert [client.read(), client.read()] == [ok(), ok()]
    message_id = client.message().id
    assert client.ask(b"CLS\n") == ok(b"CLOSE_WAIT")
    client.send(b"FIN %b\n" % message_id)
    assert client.is_silent()


def test_a_consumer_too_many(tmp_path: Path) -> None:
    with Running(tmp_path, "--max-channel-consumers=1") as nsqd, nsqd.client() as first:
        assert first.ask(b"SUB t c\n") == ok()
        with nsqd.client() as second:
            assert second.ask(b"SUB t c\n") == error(
                b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"
            )
            assert second.is_closed()


def test_options_change_limits_and_their_texts(tmp_path: Path) -> None:
    flags = ("--max-rdy-count=5", "--max-msg-size=100", "--max-req-timeout=1s")
    with Running(tmp_path, *flags) as nsqd:
        for command, data in (
            (b"SUB t c\nRDY 6\n", b"E_INVALID RDY count 6 out of range 0-5"),
            (pub(b"t", b"x" * 101), b"E_BAD_MESSAGE PUB message too big 101 > 100"),
            (dpub(b"t", 1001, b"x"), b"E_INVALID DPUB timeout 1001 out of range 0-1000"),
            (
                mpub(b"t", [b"x", b"y" * 101]),
                b"E_BAD_MESSAGE MPUB message too big 101 > 100",
            ),
        ):
            with nsqd.client() as client:
                client.send(command)
                frames_read = [client.read()]
                if frames_read[0] == ok():
                    frames_read = [client.read()]
                assert frames_read == [error(data)]


def test_deleting_a_channel_hangs_up_on_its_consumers(client: V2, nsqd: Running) -> None:
    assert client.ask(b"SUB doomed c\n") == ok()
    assert nsqd.request("POST", "/channel/delete?topic=doomed&channel=c").status == 200
    assert client.is_closed()


def test_an_ephemeral_channel_goes_with_its_last_consumer(nsqd: Running) -> None:
    with nsqd.client() as client:
        assert client.ask(b"SUB lasting c#ephemeral\n") == ok()
    assert eventually(lambda: not nsqd.stats("&topic=lasting")["topics"][0]["channels"])


def test_publishing_to_a_stopped_topic_names_the_reason(client: V2, nsqd: Running) -> None:
    assert client.ask(pub(b"stopped", b"x")) == ok()

    def stop() -> None:
        nsqd.daemon.broker.topics["stopped"].leader().group.stop("a bad disk")

    nsqd.call(stop)
    assert client.ask(pub(b"stopped", b"x")) == error(b"E_PUB_FAILED PUB failed a bad disk")
    assert client.is_closed()
    for command, code in (
        (mpub(b"stopped", [b"x"]), b"MPUB"),
        (dpub(b"stopped", 5, b"x"), b"DPUB"),
    ):
        with nsqd.client() as other:
            assert other.ask(command) == error(b"E_%b_FAILED %b failed a bad disk" % (code, code))


def test_a_write_that_was_refused_names_the_reason_and_the_next_one_may_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client, nsqd.client() as other:
        assert client.ask(pub(b"full_disk", b"x")) == ok()

        def refuse(*_: object) -> None:
            raise WriteRefused("/data", "no space left on device")

        monkeypatch.setattr(PartitionLog, "write", refuse)
        assert client.ask(pub(b"full_disk", b"x")) == error(
            b"E_PUB_FAILED PUB failed no space left on device"
        )
        assert client.is_closed()
        answer = nsqd.request("POST", "/pub?topic=full_disk", b"x")
        assert (answer.status, b"no space left on device" in answer.body) == (503, True)
        assert (
            nsqd.request("GET", "/ping").body == b"NOK - topic full_disk: no space left on device"
        )
        monkeypatch.undo()
        assert other.ask(pub(b"full_disk", b"x")) == ok()
        assert nsqd.request("GET", "/ping").body == b"OK"


def test_every_malformed_publish_has_its_fault() -> None:
    texts = {
        bad_pub(verb, kind, b"t", 1, 2).data for verb in (Verb.PUB, Verb.MPUB) for kind in BadPub
    }
    assert len(texts) == 2 * len(BadPub) - 2  # a message is too big, alone or among others


def test_reasons() -> None:
    assert reason_of(Refused("exiting")) == b"exiting"
    assert reason_of(StorageError("/d", "is full")) == b"/d: is full"
