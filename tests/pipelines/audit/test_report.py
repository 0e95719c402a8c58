"""The report as a page and as words, and the times that people give."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Move
from penstock.pipelines.audit.channel_state import Answer, Asker
from penstock.pipelines.audit.report import (
    KINDS,
    ChannelReport,
    Coverage,
    Example,
    Finding,
    PartitionReport,
    Report,
    Waits,
    lines,
    page,
)
from penstock.spark.brokerapi import BrokerApi

from ..node import Node, numbered


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.references += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "<script>alert('x')</script>&"


def a_report(**changed: Any) -> Report:
    moment = datetime(2026, 9, 21, tzinfo=UTC)
    waits = {"total": Waits(dict.fromkeys(("p50", "p90", "p99", "p999"), 1500.0), 9e6)}
    fates = {"finished": 7, "unsent": 1, "out": 1}
    channel = ChannelReport(EVIL, 9, 9, fates, 9, 1, 1, 0, waits)
    examples = (Example(0, 5, EVIL, moment, EVIL),)
    findings = tuple(Finding(kind, EVIL, EVIL, 2, examples, {0: 2}) for kind in KINDS)
    report = Report(
        EVIL, moment, moment + timedelta(hours=1), moment + timedelta(hours=2), 60, 300,
        Coverage(9, 10, "counted"), (PartitionReport(0, 9, None, 10),), (channel,), findings,
        (EVIL,), 27, 0.1,
    )  # fmt: skip
    return replace(report, **changed)


def test_the_page_stands_alone_and_escapes_everything() -> None:
    text = page(a_report())
    seen = Seen()
    seen.feed(text)
    assert seen.open == []
    assert seen.references == []
    assert "script" not in seen.tags
    assert "url(" not in text
    assert "@import" not in text
    assert EVIL in seen.text
    assert all(kind.meaning in seen.text for kind in KINDS.values())
    assert "prefers-color-scheme: dark" in text


def test_the_terminal_says_the_same() -> None:
    output = "\n".join(lines(a_report()))
    assert all(kind.title in output for kind in KINDS.values())
    assert "9 of 10 messages are in the trace (90.0%" in output
    assert output.splitlines()[-1].startswith("28 findings of 14 kinds and sources")
    assert "\nclean (" in "\n".join(lines(a_report(findings=())))


def test_partitions_are_named_where_there_are_several() -> None:
    one = "\n".join(lines(a_report()))
    assert "partition" not in one
    several = (PartitionReport(0, 4, 5, None), PartitionReport(3, 900, 901, None))
    (example,) = a_report().findings[0].examples
    gap = Finding("gap", None, "the archive", 7, (replace(example, partition=3),), {0: 2, 3: 5})
    report = a_report(partitions=several, findings=(gap,))
    output = "\n".join(lines(report))
    assert "7 gap in the offsets, the archive, partition 0 (2), 3 (5)" in output
    assert "  partition 3, offset 5 " in output
    (row,) = (line.split() for line in output.splitlines() if line.split()[:2] == ["3", "900"])
    assert row == ["3", "900", "901", "-", "5"]
    seen = Seen()
    seen.feed(page(report))
    assert "Partitions" in seen.text
    assert "the archive, partition 0 (2), 3 (5)" in seen.text


# --- nsqd is asked about single messages, by dry runs alone ---


class Moving:
    """A channel of which others finish messages all the time; it holds still after some asks."""

    def __init__(self, restless: int) -> None:
        self.asked, self._restless = 0, restless
        self.positions, self.at = list, lambda *_: self

    def ask(self, call: calls.Call[Any]) -> Any:
        if call.path != "/channel/setoffset":
            return {"id": "00000000000000ab"}
        self.asked += 1
        left = max(self._restless - self.asked, 0)
        return Move(100, 0, left + ("offset:8" in dict(call.query).values()))


@pytest.mark.parametrize(("restless", "output"), [(0, Answer.HELD), (5, Answer.HELD),
                                                (1000, Answer.UNKNOWN)])  # fmt: skip
def test_a_channel_that_moves_is_asked_again(restless: int, output: Answer) -> None:
    api: Any = Moving(restless)
    asker = Asker(api, "orders")
    assert asker("mail", 0, 7, "00000000000000ab") is output


def test_a_channel_is_asked_about_one_partition(node: Node) -> None:
    daemon = node.daemon
    daemon.make("orders", "mail", shape="&partition_num=4")
    node.publish_to("orders", {1: numbered(3), 3: numbered(2)})
    with BrokerApi(node.url) as api, daemon.client() as consumer:
        asker = Asker(api, "orders")
        consumer.identify()
        consumer.sub("orders", "mail")
        consumer.rdy(5)
        taken = consumer.messages(5)
        where = {
            str(api.ask(calls.message("orders", "offset", offset, number))["id"]): (number, offset)
            for number, offset in ((1, 0), (1, 1), (1, 2), (3, 0), (3, 1))
        }
        done = {(1, 0), (3, 1)}
        for message in taken:
            if where[message.id.decode()] in done:
                consumer.fin(message.id)
        consumer.settle()
        for id, (number, offset) in where.items():
            wanted = Answer.DONE if (number, offset) in done else Answer.HELD
            assert asker("mail", number, offset, id) is wanted
            other = Answer.GONE if offset < 2 else Answer.AHEAD  # of the other partition
            assert asker("mail", 4 - number, offset, id) is other
