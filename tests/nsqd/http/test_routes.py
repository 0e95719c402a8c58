"""What nsqd's HTTP API refuses: each refusal names the rule, and changes nothing.

What is as in NSQ stands in `tests/conformance/http.toml`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import limits

from ..skewed import skewed
from ..world import Running, pub


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`t` has one partition and `p` has three; all is finished in their channels."""
    with Running(tmp_path_factory.mktemp("world"), "--durability=os") as running:
        skewed(running, "t", (3,))
        skewed(running, "p")
        for topic in "tp":
            running.request("POST", f"/channel/create?topic={topic}&channel=c")
            running.request("POST", f"/channel/empty?topic={topic}&channel=c")
        yield running


def look(nsqd: Running) -> list[object]:
    names = ("t", "p")
    shown = [nsqd.ask("GET", f"/topic/config?topic={name}") for name in names]
    shown += [nsqd.ask("GET", f"/channel/config?topic={name}&channel=c") for name in names]
    counts = [
        (topic["topic_name"], topic["message_count"], one["channel_name"], one["depth"])
        for topic in nsqd.stats()["topics"]
        for one in topic["channels"]
    ]
    return [*shown, sorted(counts), nsqd.ask("GET", "/drain")[1]["state"]]


C = "topic=t&channel=c"
P = "topic=p&channel=c"
NONE = f"{1:016x}"
W3C = "4bf92f3577b34da6a3ce929d0e0e4736"
SHAPE = "a whole number, 1 to 255"
RATE = "a number from 0 to 1"
# A request, perhaps with a body behind it; the status; how the message begins.
REFUSALS = [
    # what there is not, whatever is asked of it
    *[(asked, 400, "MISSING_ARG_TOPIC") for asked in (
        "POST /topic/config", "POST /topic/partition/expand", "POST /topic/greedyclean",
        "POST /topic/concede", "POST /channel/config", "GET /channel/messages?channel=c",
        "POST /channel/setoffset?channel=c earliest", "GET /log/fetch?from=0", "GET /message/stats",
        "POST /message/trace/enable",
    )],
    *[(asked, 400, "MISSING_ARG_CHANNEL") for asked in (
        "POST /channel/config?topic=t", "GET /channel/messages?topic=t",
        "POST /channel/setoffset?topic=t earliest",
    )],
    *[(asked, 404, "TOPIC_NOT_FOUND") for asked in (
        "POST /topic/config?topic=no", "POST /topic/partition/expand?topic=no&partition_num=2",
        "POST /topic/meta/update?topic=no", "POST /topic/concede?topic=no",
        "GET /channel/config?topic=no&channel=c", "GET /channel/messages?topic=no&channel=c",
        "POST /channel/setoffset?topic=no&channel=c earliest", "GET /log/fetch?topic=no&from=0",
        "GET /message/stats?topic=no", "GET /coordinator/stats?topic=no",
        "POST /message/trace/enable?topic=no",
    )],
    *[(asked, 404, "CHANNEL_NOT_FOUND") for asked in (
        "GET /channel/config?topic=t&channel=no", "POST /channel/redrive?topic=t&channel=no",
        "POST /channel/ratelimit?topic=t&channel=no&ratekilobytes=1",
        "GET /channel/messages?topic=t&channel=no", "POST /channel/emptydelayed?topic=t&channel=no",
        "POST /channel/setoffset?topic=t&channel=no earliest",
        "GET /message/stats?topic=t&channel=no", "POST /message/trace/enable?topic=t&channel=no",
    )],
    *[(asked, 404, "MESSAGE_NOT_FOUND") for asked in (
        f"POST /channel/message/finish?{C}&id={NONE}",
        f"POST /channel/message/requeue?{C}&id={NONE}", f"POST /channel/setoffset?{C} id:{NONE}",
        f"POST /channel/setoffset?{P} id:{NONE}", f"GET /message/get?topic=t&id={NONE}",
        "GET /message/get?topic=t&trace_id=5", f"GET /message/get?topic=t&trace_id={(1 << 64) - 1}",
        f"GET /message/get?topic=t&trace_id={W3C}",
    )],
    *[(asked, 405, "METHOD_NOT_ALLOWED") for asked in (
        f"GET /channel/redrive?{C}", f"POST /channel/messages?{C}",
        f"GET /channel/message/finish?{C}",
    )],
    # what there is of topics
    ("POST /topic/config?topic=t&max_depth=-1&max_age=1s", 400,
     "INVALID_ARG_MAX_DEPTH '-1': a whole number, 0 to "),
    ("POST /topic/config?topic=t&max_depth=x", 400, "INVALID_ARG_MAX_DEPTH 'x': a whole number"),
    ("POST /topic/config?topic=t&retain_bytes=9223372036854775808", 400,
     "INVALID_ARG_RETAIN_BYTES"),
    (f"POST /topic/config?topic=t&retain_bytes={'0' * 20}{'9' * 5000}", 400,
     "INVALID_ARG_RETAIN_BYTES"),
    ("POST /topic/config?topic=t&max_age=5", 400, "INVALID_ARG_MAX_AGE '5': '5' is no duration"),
    ("POST /topic/config?topic=t&max_age=-5s", 400, "INVALID_ARG_MAX_AGE '-5s': a duration such"),
    ("POST /topic/config?topic=t&durability=ram", 400,
     "INVALID_ARG_DURABILITY 'ram': one of disk, os"),
    ("POST /topic/config?topic=t&max_debt=5&max_age=1s", 400,
     "INVALID_ARG max_debt: no such setting; there are durability"),
    ("POST /topic/config?topic=t&disable_channel_auto_create=x", 400,
     "INVALID_ARG_DISABLE_CHANNEL_AUTO_CREATE 'x': one of"),
    *[(f"POST /topic/config?topic=t&trace_rate={rate}", 400,
       f"INVALID_ARG_TRACE_RATE '{rate}': {RATE}") for rate in ("1.1", "-0.1", "x", "nan")],
    *[(f"POST /topic/create?topic=new&partition_num={count}", 400,
       f"INVALID_ARG_PARTITION_NUM '{count}': {SHAPE}") for count in ("0", "-1", "", "two")],
    ("POST /topic/create?topic=new&replicator=3", 400, "INVALID_ARG_REPLICATOR '3': a node by"
     " itself, and an ephemeral topic, keep 1 copy; others need --cluster"),
    ("POST /topic/create?topic=new&extend=maybe", 400,
     "INVALID_ARG_EXTEND 'maybe': one of true, 1, false, 0"),
    ("POST /topic/partition/expand?topic=p", 400, "MISSING_ARG_PARTITION_NUM"),
    ("POST /topic/partition/expand?topic=p&partition_num=0", 400, "INVALID_ARG_PARTITION_NUM '0'"),
    ("POST /topic/partition/expand?topic=p&partition_num=9&rehash=x", 400,
     "INVALID_ARG_REHASH 'x'"),
    ("POST /topic/partition/expand?topic=p&partition_num=1", 409, "GROWTH_REFUSED topic p has 3 "),
    ("POST /topic/meta/update?topic=t&upgradeext=2", 400, "INVALID_ARG_UPGRADEEXT '2'"),
    ("POST /topic/greedyclean?topic=t&bytes=x", 400, "INVALID_ARG_BYTES 'x'"),
    ("POST /topic/cleanunused?dryrun=x", 400, "INVALID_ARG_DRYRUN 'x': true or false"),
    ("POST /topic/concede?topic=p&partition=7", 400, "E_BAD_PARTITION"),
    # of channels
    (f"POST /channel/config?{C}&max_attempts=-1", 400, "INVALID_ARG_MAX_ATTEMPTS '-1'"),
    (f"POST /channel/config?{C}&max_attempts=65536", 400, "INVALID_ARG_MAX_ATTEMPTS '65536'"),
    (f"POST /channel/config?{C}&max_attempt=1", 400, "INVALID_ARG max_attempt: no such setting"),
    (f"POST /channel/config?{C}&dead_letter_topic=a$", 400, "INVALID_ARG dead_letter_topic 'a$'"),
    (f"POST /channel/config?{C}&dead_letter_topic=t", 400, "INVALID_ARG dead_letter_topic 't'"),
    (f"POST /channel/config?{C}&order=keys", 400, "INVALID_ARG_ORDER 'keys': it is none or key or"),
    (f"POST /channel/config?{C}&poison=x", 400, "INVALID_ARG_POISON 'x': it is dead_letter or"),
    *[(f"POST /channel/config?{C}&trace_rate={rate}", 400,
       f"INVALID_ARG_TRACE_RATE '{rate}': {RATE}") for rate in ("1.1", "-0.1", "x", "nan")],
    (f"POST /channel/setorder?{C}", 400, "INVALID_ARG_ORDER '': it is true or false"),
    (f"POST /channel/setorder?{C}&order=1", 400, "INVALID_ARG_ORDER '1': it is true or false"),
    (f"POST /channel/redrive?{C}&count=x", 400, "INVALID_ARG_COUNT 'x'"),
    (f"POST /channel/ratelimit?{C}", 400, "MISSING_ARG_RATEKILOBYTES"),
    (f"POST /channel/ratelimit?{C}&ratekilobytes=-1", 400, "INVALID_ARG_RATEKILOBYTES '-1'"),
    (f"POST /channel/setclientlimit?{C}", 400, "MISSING_ARG_READY"),
    (f"POST /channel/setclientlimit?{C}&ready=9999", 400, "INVALID_ARG_READY '9999'"),
    # their messages
    (f"GET /channel/messages?{C}&state=gone", 400, "INVALID_ARG_STATE 'gone': one of in_flight,"),
    (f"GET /channel/messages?{C}&limit=1001", 400, "INVALID_ARG_LIMIT '1001'"),
    (f"POST /channel/message/finish?{C}", 400, "MISSING_ARG_ID"),
    (f"POST /channel/message/finish?{C}&id=xyz", 400, "INVALID_ARG_ID 'xyz': 16 hex digits"),
    (f"POST /channel/message/requeue?{C}&id={NONE}&delay_ms=-1", 400, "INVALID_ARG_DELAY_MS"),
    *[row for c in (C, P) for row in (
        (f"POST /message/finish?{c}", 400, "MISSING_ARG_MSGID"),
        (f"POST /message/finish?{c}&msgid=x", 400, "INVALID_ARG_MSGID 'x'"),
        (f"POST /message/finish?{c}&msgid=000000000000000g", 400, "INVALID_ARG_ID"),
        (f"POST /message/finish?{c}&msgid=7", 404, "MESSAGE_NOT_FOUND"),
        (f"POST /message/finish?{c}&msgid=7&partition=x", 400, "E_BAD_PARTITION"),
        (f"POST /channel/requeuedelayed?{c}", 400, "MISSING_ARG_OFFSET"),
        (f"POST /channel/requeuedelayed?{c}&offset=-1", 400, "INVALID_ARG_OFFSET '-1': a whole"),
    )],
    # a place in their logs
    (f"POST /channel/setoffset?{C}", 400, "MISSING_ARG_POSITION"),
    (f"POST /channel/setoffset?{C} start", 400,
     "INVALID_ARG_POSITION 'start': one of timestamp:TIME"),
    (f"POST /channel/setoffset?{C}&dry_run=maybe earliest", 400, "INVALID_ARG_DRY_RUN 'maybe'"),
    (f"POST /channel/setoffset?{C} offset:6", 416, "OFFSET_BEYOND_END"),
    (f"POST /channel/setoffset?{P} offset:1", 400,
     "MISSING_ARG_PARTITION offset is a position in one"),
    (f"POST /channel/setoffset?{P}&partition=-1 back:1", 400,
     "MISSING_ARG_PARTITION back is a position in one"),
    (f"POST /channel/setoffset?{P}&partition=3 earliest", 404, "PARTITION_NOT_FOUND"),
    (f"POST /channel/setoffset?{P}&partition=x earliest", 400, "INVALID_ARG_PARTITION 'x'"),
    (f"POST /channel/setoffset?{P}&partition=0 offset:3", 416, "OFFSET_BEYOND_END"),
    ("GET /log/fetch?topic=t", 400, "MISSING_ARG_FROM"),
    ("GET /log/fetch?topic=t&from=-1", 400, "INVALID_ARG_FROM '-1': a whole number"),
    ("GET /log/fetch?topic=t&from=2&to=1", 400, "INVALID_ARG_TO 1: it is below from=2"),
    ("GET /log/fetch?topic=t&from=0&bytes_max=x", 400, "INVALID_ARG_BYTES_MAX 'x'"),
    ("GET /log/fetch?topic=t&from=0&partition=1", 404, "PARTITION_NOT_FOUND"),
    ("GET /log/fetch?topic=t&from=0&identity=x", 409, "IDENTITY_CHANGED"),
    ("GET /log/fetch?topic=t&from=4", 416, "OFFSET_BEYOND_END"),
    ("GET /log/positions?from=1", 400, "INVALID_ARG_FROM"),
    *[(f"GET /log/positions?topic=p&from={text}", 400, f"INVALID_ARG_FROM {named!r}")
      for text, named in (("x:1", "x:1"), ("255:1", "255:1"), (":1", ":1"), ("1:", "1:"),
                          ("1:x", "x"), ("-1:5", "-1:5"), ("1:2:3", "2:3"))],
    ("GET /log/positions?pattern=(", 400, "INVALID_ARG_PATTERN '('"),
    (f"GET /log/positions?{'topic=x&' * (limits.LOG_TOPICS_MAX + 1)}", 400, "INVALID_ARG_TOPIC"),
    ("GET /log/offset?topic=t", 400, "MISSING_ARG_TIMESTAMP_MS"),
    ("GET /message/get?topic=t", 400, "MISSING_ARG_ID"),
    ("GET /message/get?topic=t&id=12", 400, "INVALID_ARG_ID '12': 16 hex digits"),
    ("GET /message/get?topic=t&id=00000000000000zz", 400, "INVALID_ARG_ID"),
    (f"GET /message/get?topic=t&trace_id={1 << 64}", 400, "INVALID_ARG_TRACE_ID"),
    ("GET /message/get?topic=t&trace_id=0", 400, "INVALID_ARG_TRACE_ID"),
    ("GET /message/get?topic=t&offset=3", 416, "OFFSET_BEYOND_END"),
    (f"GET /message/get?topic=t&offset=1&id={NONE}", 400, "MISSING_ARG_ID"),
    ("GET /message/get?topic=p&offset=0", 400, "MISSING_ARG_PARTITION"),
    # figures
    *[(f"GET /stats?partition={text}", 400, f"INVALID_ARG_PARTITION '{text}'")
      for text in ("x", "255", "-2")],
    ("GET /message/historystats?topic=t&partition=9", 400, "E_BAD_PARTITION"),
    # publishes
    *[(f"POST {path}topic=p&partition={text} x", 400, "E_BAD_PARTITION")
      for path in ("/pub?", "/mpub?", "/pubtrace?trace_id=1&")
      for text in ("3", "255", "-2", "x", "1%20", "%ff")],
    *[row for path in ("/pub", "/mpub") for row in (
        (f"POST {path}?topic=p&key= x", 400,
         "INVALID_ARG_KEY '': 1 byte to 65535 of them as JSON"),
        (f"POST {path}?topic=p&key=%ff x", 400, "INVALID_ARG_KEY '\\udcff': it is no UTF-8"),
        (f"POST {path}?topic=p&key=k&partition=1 x", 400,
         "INVALID_ARG_KEY 'k': a publish names a key or a partition, not both"),
        (f"POST {path}?topic=p&key=k&producer_id=1&sequence=0 x", 400, "INVALID_ARG_KEY 'k': a"
         " producer that numbers its messages has a partition of its own"),
        (f"POST {path}?topic=p&partition=x&key=k x", 400, "E_BAD_PARTITION"),
    )],
    *[(f"POST {path}?topic=t&{stamp} x", 400, message)
      for path in ("/pub", "/mpub")
      for stamp, message in (
          ("producer_id=1", "MISSING_ARG_SEQUENCE"),
          ("sequence=1", "MISSING_ARG_PRODUCER_ID"),
          ("producer_epoch=1", "MISSING_ARG_PRODUCER_ID"),
          ("producer_id=0&sequence=0", "INVALID_PRODUCER_ID"),
          (f"producer_id={1 << 64}&sequence=0", "INVALID_PRODUCER_ID"),
          ("producer_id=1&sequence=-1", "INVALID_SEQUENCE"),
          ("producer_id=1&sequence=4294967295", "INVALID_SEQUENCE"),
          ("producer_id=1&sequence=%C2%B2", "INVALID_SEQUENCE"),
          ("producer_id=1&sequence=0&producer_epoch=65536", "INVALID_PRODUCER_EPOCH"),
      )],
    # switches
    ("POST /drain?delayed=maybe", 400, "INVALID_ARG_DELAYED 'maybe': true or false"),
    ("POST /disable/write", 400, "INVALID_ARG_TYPE '': one of all, ordered, none"),
    ("POST /disable/write?type=some", 400, "INVALID_ARG_TYPE 'some': one of all, ordered, none"),
    ("POST /loglevel/set", 400, "INVALID_ARG_LOGLEVEL ''"),
    ("POST /loglevel/set?loglevel=loud", 400, "INVALID_ARG_LOGLEVEL 'loud': one of debug, info"),
    ("POST /message/trace/enable?topic=t&slow=true", 400,
     "INVALID_ARG slow: there are channel, rate, topic"),
    ("POST /message/trace/enable?topic=t&rate=2", 400, f"INVALID_ARG_RATE '2': {RATE}"),
]  # fmt: skip


def test_a_refusal_names_the_rule_and_changes_nothing(world: Running) -> None:
    before = look(world)
    for request, status, message in REFUSALS:
        method, target, *body = request.split(" ", 2)
        got, document = world.ask(method, target, "".join(body).encode())
        assert (got, document["message"][: len(message)]) == (status, message), request
        if message == "E_BAD_PARTITION":
            assert "0 to " in document["reason"], request
        assert look(world) == before, request


def test_broadcast_ports_replace_the_real_ones(tmp_path: Path) -> None:
    with Running(tmp_path, "--broadcast-tcp-port=5", "--broadcast-http-port=6") as nsqd:
        info = json.loads(nsqd.request("GET", "/info").body)
        assert (info["tcp_port"], info["http_port"]) == (5, 6)


def test_polling_by_nsqadmin_is_not_logged(nsqd: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "penstock.nsqd"):
        for path in ("/stats", "/cluster", "/info"):
            nsqd.request("GET", path)
    assert "200 GET /info" in caplog.text
    assert "/stats" not in caplog.text
    assert "/cluster" not in caplog.text


def test_exiting(nsqd: Running) -> None:
    assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    nsqd.call(lambda: nsqd.daemon.broker.refuse(exiting=True))
    for target in ("/pub?topic=t", "/mpub?topic=t", "/pub?topic=new", "/topic/create?topic=n"):
        answer = nsqd.request("POST", target, b"x")
        assert (answer.status, answer.body) == (503, b'{"message":"EXITING"}')
    for command, data in (
        (pub("t", b"x"), b"E_PUB_FAILED PUB failed exiting"),
        (pub("new", b"x"), b"E_PUB_FAILED PUB failed exiting"),
        (b"SUB new c\n", b"E_SUB_FAILED SUB failed exiting"),
    ):
        assert nsqd.answer_to(command).data == data
