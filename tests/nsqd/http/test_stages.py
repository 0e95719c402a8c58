"""`/stage`, `/stage/commit`, `/stage/abort`, `/stage/last`, `/stage/list`: answers and refusals."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.kernel import Section, decode_columns, encode_batch

from ..world import Running


def batch(*bodies: bytes, **more: Any) -> bytes:
    return encode_batch(list(bodies), 0, 0, 0, **more)


def stage(nsqd: Running, topic: str, name: str, body: bytes) -> tuple[int, Any]:
    return nsqd.ask("POST", f"/stage?topic={topic}&stage={name}&partition=0", body)


def commit(nsqd: Running, app: str, version: int, *stages: tuple[str, str]) -> tuple[int, Any]:
    named = [{"topic": topic, "partition": 0, "stage": name} for topic, name in stages]
    body = json.dumps({"stages": named}).encode()
    return nsqd.ask("POST", f"/stage/commit?app={app}&version={version}", body)


def last(nsqd: Running, app: str) -> int | None:
    version: int | None = json.loads(nsqd.request("GET", f"/stage/last?app={app}").body)["version"]
    return version


def stored(nsqd: Running, topic: str) -> list[bytes]:
    data = nsqd.request("GET", f"/log/fetch?topic={topic}&from=0").body
    columns = decode_columns(data)
    ends = memoryview(columns.body_offsets).cast("q")
    return [bytes(columns.bodies[a:b]) for a, b in pairwise(ends)]


def done(messages: int) -> tuple[int, Any]:
    return 200, {"committed": True, "repeated": False, "messages": messages}


REPEATED = (200, {"committed": True, "repeated": True, "messages": 0})


def test_stages_of_four_partitions_are_committed_once(nsqd: Running) -> None:
    topic = nsqd.call(lambda: nsqd.daemon.broker.topic("four", 4))
    named = []
    for number, count in enumerate((1, 1, 27, 1)):
        data = batch(*(b"%d-%d" % (number, n) for n in range(count)))
        staged = nsqd.ask("POST", f"/stage?topic=four&stage=x&partition={number}", data)
        assert staged == (200, {"stage": "x", "messages": count, "bytes": len(data)})
        named.append({"topic": "four", "partition": number, "stage": "x"})
    other = nsqd.ask("POST", "/stage?topic=four&stage=x&partition=3", batch(b"other"))
    assert (other[0], other[1]["partition"]) == (409, 3)
    wrong = json.dumps({"stages": [{**named[0], "partition": 4}]}).encode()
    status, answer = nsqd.ask("POST", "/stage/commit?app=four&version=0", wrong)
    assert (status, answer["message"]) == (404, "STAGE_NOT_FOUND")
    assert (answer["partition"], answer["stage"]) == (4, "x")
    ends = lambda: [leader.tail.committed_end for leader in topic.leaders]  # noqa: E731
    assert nsqd.call(ends) == [0, 0, 0, 0]
    body = json.dumps({"stages": named}).encode()
    assert nsqd.ask("POST", "/stage/commit?app=four&version=0", body) == done(30)
    assert nsqd.ask("POST", "/stage/commit?app=four&version=0", body) == REPEATED
    assert nsqd.call(ends) == [1, 1, 27, 1]
    left = nsqd.ask("POST", "/stage?topic=four&stage=y&partition=2", batch(b"left"))
    assert left[0] == 200
    given_up = json.dumps({"stages": [{"topic": "four", "partition": 2, "stage": "y"}]}).encode()
    assert nsqd.ask("POST", "/stage/abort", given_up) == (200, {"aborted": 1})


def test_stages_of_two_topics_are_committed_once(nsqd: Running) -> None:
    two = batch(b"a", b"b") + batch(b"c")
    assert stage(nsqd, "one", "x", two) == (200, {"stage": "x", "messages": 3, "bytes": len(two)})
    assert stage(nsqd, "one", "x", two)[0] == 200
    assert stage(nsqd, "two", "x", batch(b"d"))[0] == 200
    assert stage(nsqd, "one", "y", batch(b"e"))[0] == 200
    assert stored(nsqd, "one") == []
    assert last(nsqd, "app") is None
    named = (("one", "x"), ("two", "x"), ("one", "y"))
    assert commit(nsqd, "app", 7, *named) == done(5)
    assert stored(nsqd, "one") == [b"a", b"b", b"c", b"e"]
    assert stored(nsqd, "two") == [b"d"]
    assert last(nsqd, "app") == 7
    for version in (7, 6, 0):
        assert commit(nsqd, "app", version, *named) == REPEATED
    assert commit(nsqd, "app", 8) == done(0)
    assert last(nsqd, "app") == 8
    status, answer = commit(nsqd, "app", 9, *named)
    assert (status, answer["message"], answer["stage"]) == (404, "STAGE_NOT_FOUND", "x")
    assert stored(nsqd, "one") == [b"a", b"b", b"c", b"e"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "there is no batch"),
        (b"hello", "no batch begins here"),
        (batch(b"a" * 1025), "a message of 1025 bytes"),
    ],
)
def test_bad_batches(small: Running, body: bytes, reason: str) -> None:
    """Each reason is shown by `tests/broker/commits/test_blocks.py`."""
    good = batch(b"good")
    status, answer = stage(small, "bad", "x", good + body if body else body)
    assert (status, answer["message"]) == (400, "BAD_BATCH")
    assert answer["reason"].startswith(reason)
    assert answer["position"] == (len(good) if body else 0)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("small"), "--max-msg-size=1024") as running:
        yield running


def test_a_due_time_beyond_the_bound(nsqd: Running) -> None:
    late = {int(Section.DUE): {0: time.time_ns() + 2 * limits.REQUEUE_DELAY_MAX_NS}}
    assert stage(nsqd, "late", "x", batch(b"a", sections=late)) == (
        400,
        {"message": "INVALID_DEFER"},
    )


@each(
    ("target", "body", "status", "code"),
    [
        ("/stage?stage=x", batch(b"a"), 400, "MISSING_ARG_TOPIC"),
        ("/stage?topic=t", batch(b"a"), 400, "MISSING_ARG_STAGE"),
        ("/stage?topic=t&stage=a%0Ab", batch(b"a"), 400, "INVALID_ARG_STAGE"),
        (f"/stage?topic=t&stage={'x' * 201}", batch(b"a"), 400, "INVALID_ARG_STAGE"),
        ("/stage?topic=t&stage=x&partition=1", batch(b"a"), 404, "PARTITION_NOT_FOUND"),
        ("/stage?topic=t&stage=x&partition=-1", batch(b"a"), 400, "INVALID_ARG_PARTITION '-1'"),
        ("/stage?topic=a%20b&stage=x", batch(b"a"), 400, "INVALID_TOPIC"),
        ("/stage?topic=t%23ephemeral&stage=x", batch(b"a"), 503, "FAILED nothing can be staged"),
        ("/stage/commit?version=1", b'{"stages":[]}', 400, "MISSING_ARG_APP"),
        ("/stage/commit?app=a", b'{"stages":[]}', 400, "MISSING_ARG_VERSION"),
        ("/stage/commit?app=a&version=" + "9" * 5000, b'{"stages":[]}', 400, "INVALID_ARG_VERSION"),
        ("/stage/commit?app=a&version=9223372036854775808", b"{}", 400, "INVALID_ARG_VERSION"),
        ("/stage/commit?app=a&version=1", b"{}", 400, "INVALID_BODY"),
        ("/stage/commit?app=a&version=1", b"\xff", 400, "INVALID_BODY"),
        ("/stage/commit?app=a&version=1", b'{"stages":[{"topic":"t"}]}', 400, "INVALID_BODY"),
        (
            "/stage/commit?app=a&version=1",
            b'{"stages":[{"topic":"t","stage":"x"},{"topic":"t","stage":"x"}]}',
            400,
            "INVALID_BODY",
        ),
        ("/stage/abort", b"", 400, "INVALID_BODY"),
        ("/stage?topic=t&stage=x&version=1", batch(b"a"), 400, "MISSING_ARG_APP"),
        ("/stage?topic=t&stage=x&app=a", batch(b"a"), 400, "MISSING_ARG_VERSION"),
        ("/stage/abort?app=a", b'{"stages":[]}', 400, "INVALID_BODY with an app"),
        ("/stage/commit?app=a&version=1&part=x&parts=2", b"{}", 400, "INVALID_ARG_PART"),
        ("/stage/commit?app=a&version=1&part=2&parts=2", b"{}", 400, "INVALID_ARG_PART 2 of 2"),
        ("/stage/commit?app=a&version=1&part=1&parts=2", b'{"stages":[]}', 409, "PART_MISSING"),
    ],
)
def test_refusals(nsqd: Running, target: str, body: bytes, status: int, code: str) -> None:
    found, answer = nsqd.ask("POST", target, body)
    assert found == status
    assert answer["message"].startswith(code)


def staged_by(nsqd: Running, name: str, app: str, version: int, attempt: str) -> tuple[int, Any]:
    target = f"/stage?topic=apps&stage={name}&app={app}&version={version}&attempt={attempt}"
    return nsqd.ask("POST", target, batch(b"a"))


def listed(nsqd: Running, app: str) -> list[tuple[list[int], int]]:
    document = json.loads(nsqd.request("GET", f"/stage/list?app={app}").body)
    return [(one["versions"], one["stages"]) for one in document["apps"]]


def test_stages_of_an_app(nsqd: Running) -> None:
    for name in ("x", "y"):
        assert staged_by(nsqd, name, "job", 1, "first")[0] == 200
    assert listed(nsqd, "job") == [([1], 2)]
    assert staged_by(nsqd, "z", "job", 1, "second")[0] == 200
    status, answer = staged_by(nsqd, "late", "job", 1, "first")
    assert (status, answer["message"], answer["app"]) == (409, "ATTEMPT_SUPERSEDED", "job")
    assert staged_by(nsqd, "w", "job", 2, "second")[0] == 200
    assert listed(nsqd, "job") == [([1, 2], 2)]
    assert nsqd.ask("POST", "/stage/abort?app=job&version=2") == (200, {"aborted": 1})
    assert nsqd.ask("POST", "/stage/abort?app=job") == (200, {"aborted": 1})
    assert (listed(nsqd, "job"), nsqd.ask("POST", "/stage/abort?app=job")) == (
        [],
        (200, {"aborted": 0}),
    )


def test_a_commit_in_parts(nsqd: Running) -> None:
    for name in ("x", "y", "z"):
        stage(nsqd, "parts", name, batch(name.encode()))

    def part(number: int, *names: str) -> tuple[int, Any]:
        body = json.dumps({"stages": [{"topic": "parts", "stage": name} for name in names]})
        target = f"/stage/commit?app=parts&version=5&part={number}&parts=3"
        return nsqd.ask("POST", target, body.encode())

    for _ in range(2):
        assert part(0, "x") == (200, {"committed": False, "part": 0})
    assert part(2, "z") == (409, {"message": "PART_MISSING", "part": 1})
    assert stored(nsqd, "parts") == []
    assert part(1, "y") == (200, {"committed": False, "part": 1})
    assert part(2, "z") == done(3)
    assert stored(nsqd, "parts") == [b"x", b"y", b"z"]
    assert [part(number, "x") for number in (0, 2)] == [REPEATED] * 2
    stage(nsqd, "parts", "w", batch(b"w"))
    body = json.dumps({"stages": [{"topic": "parts", "stage": "w"}]}).encode()
    twice = [
        nsqd.ask("POST", f"/stage/commit?app=parts&version=6&part={n}&parts=2", body)
        for n in (0, 1)
    ]
    assert (twice[0][0], twice[1][1]["message"]) == (200, "INVALID_BODY a stage is named twice")


def test_a_drain_refuses(nsqd: Running) -> None:
    stage(nsqd, "drained", "x", batch(b"a"))
    nsqd.call(lambda: nsqd.daemon.broker.refuse(draining=True))
    try:
        assert stage(nsqd, "drained", "y", batch(b"a"))[0] == 503
        status, answer = commit(nsqd, "drains", 0, ("drained", "x"))
        assert (status, answer["message"]) == (503, "FAILED topic drained: draining")
    finally:
        nsqd.call(lambda: nsqd.daemon.broker.refuse(draining=False))
    assert commit(nsqd, "drains", 0, ("drained", "x")) == done(1)
