import json
from functools import partial
from pathlib import Path

from cases import each
from e2e.daemon import Daemon
from e2e.ports import kept_port
from penstock.tools.nsq_to_nsq import Filter

from .utilities import Utility, channel_row, finish, is_done, publish, tcp, until


def flags(daemons: list[Daemon], *more: str) -> list[str]:
    source, destination = daemons
    return [tcp(source), to(destination), "--channel=c", *more]


def to(daemon: Daemon) -> str:
    return f"--destination-nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"


def test_topics_go_over_whole(daemons: list[Daemon], tmp_path: Path) -> None:
    source, destination = daemons
    for topic in ("one", "two"):
        publish(source, topic, [b"%d" % number for number in range(2_000)])
        destination.make(topic, "c")
    more = ["--topic=one", "--topic=two"]
    with Utility("nsq_to_nsq", *flags(daemons, *more), cwd=tmp_path) as utility:
        for topic in ("one", "two"):
            until(partial(is_done, source, topic, "c"), "all finished")
            assert channel_row(destination, topic, "c")["depth"] == 2_000
        assert utility.end() == 0


def test_another_topic_and_a_filter(daemons: list[Daemon], tmp_path: Path) -> None:
    source, destination = daemons
    publish(source, "raw", [b'{"kind":"a","n":1,"x":0}', b'{"kind":"b"}', b"no json", b"[]"])
    destination.make("chosen", "c")
    more = ["--destination-topic=chosen", "--require-json-field=kind"]
    more += ["--require-json-value=a", "--whitelist-json-field=kind", "--whitelist-json-field=n"]
    output = finish("nsq_to_nsq", source, "raw", to(destination), *more, cwd=tmp_path)
    assert "is not JSON: dropped" in output
    tail = ["--topic=chosen", "--channel=c", "--n=1"]
    with Utility("nsq_tail", *tail, tcp(destination), cwd=tmp_path) as printer:
        assert printer.wait() == 0
        assert printer.out == b'{"kind":"a","n":1}\n'
    assert channel_row(destination, "chosen", "c")["message_count"] == 1


def test_a_destination_that_comes_back_gets_everything(tmp_path: Path) -> None:
    count = 500
    with Daemon(tmp_path / "s", "--durability=os") as source:
        address = f"--tcp-address=127.0.0.1:{kept_port()}"
        destination = Daemon(tmp_path / "d", "--durability=os", address).start()
        destination.make("t", "c")
        destination.kill()
        publish(source, "t", [b"%d" % number for number in range(count)])
        more = ["--topic=t", "--consumer-opt=default_requeue_delay,10ms"]
        more += ["--consumer-opt=backoff_multiplier,10ms"]
        command = flags([source, destination], *more)
        with Utility("nsq_to_nsq", *command, cwd=tmp_path) as utility:
            until(lambda: channel_row(source, "t", "c").get("in_flight_count"), "some in hand")
            destination.start()
            until(lambda: is_done(source, "t", "c"), "all finished")
            assert channel_row(destination, "t", "c")["depth"] >= count
            assert utility.end() == 0
        destination.kill()


@each(
    ("field", "value", "document", "passes"),
    [
        ("a", "", {"a": None}, True),
        ("a", "", {"b": 1}, False),
        ("a", "x", {"a": "x"}, True),
        ("a", "1", {"a": "1"}, True),
        ("a", "1", {"a": 1}, True),
        ("a", "1.50", {"a": 1.5}, True),
        ("a", "x", {"a": 1}, False),
        ("a", "1", {"a": True}, False),
        ("a", "true", {"a": True}, True),
    ],
)
def test_which_messages_pass(field: str, value: str, document: object, passes: bool) -> None:
    body = json.dumps(document).encode()
    assert Filter(field, value, ())(body) == (body if passes else None)
