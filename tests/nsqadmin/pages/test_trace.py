"""Tracing switched on by hand, and a message's life as a timeline."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Page, expect

from penstock.pipelines.trace_table import events
from penstock.spark.brokerapi import BrokerApi
from penstock.trace.search import bodies_of

from ..conftest import Installation
from ..running import Admin

TOPIC = "letters"


@pytest.fixture(scope="module", autouse=True)
def letters(installation: Installation) -> Iterator[None]:
    installation.nsqd.post(f"/topic/create?topic={TOPIC}")
    installation.nsqd.post(f"/channel/create?topic={TOPIC}&channel=post")
    installation.wait_for_topic(TOPIC)
    yield
    installation.nsqd.post(f"/topic/delete?topic={TOPIC}")


def url(installation: Installation, path: str) -> str:
    return f"http://127.0.0.1:{installation.admin.http_port}{path}"


def test_a_timeline(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    nsqd.post(f"/message/trace/enable?topic={TOPIC}")
    nsqd.post(f"/message/trace/enable?topic={TOPIC}&channel=post")
    nsqd.post(f"/pub?topic={TOPIC}", b"dear")
    with nsqd.client() as client:
        client.sub(TOPIC, "post")
        client.rdy(1)
        message = client.message()
        assert message is not None
        client.fin(message.id)
        client.settle()
    deadline_s = time.monotonic() + 60
    while "finished" not in shown(page, installation.admin, message.id.decode()):
        assert time.monotonic() < deadline_s
    for kind in ("published", "sent", "finished"):
        expect(page.locator(".life .badge", has_text=kind)).to_be_visible()
        expect(page.locator(f".track .dot[aria-label^={kind}]")).to_have_count(1)
    expect(page.get_by_role("link", name=f"{TOPIC}/post").first).to_be_visible()
    expect(page.locator(".told")).to_contain_text("sent to post once, finished after")
    page.get_by_role("link", name="The message itself").click()
    expect(page.locator("pre.body")).to_have_text("dear")
    wait_for_log(installation)
    page.goto(url(installation, "/trace"))
    page.get_by_role("link", name=message.id.decode()).click()
    expect(page.locator(".told")).to_be_visible()


def shown(page: Page, admin: Admin, message_id: str) -> str:
    page.goto(f"http://127.0.0.1:{admin.http_port}/trace?id={message_id}")
    status = page.get_by_role("status").filter(has_text=re.compile("event|has nothing|Neither"))
    expect(status.first).to_be_visible()
    expect(page.get_by_text("looking into the table")).to_have_count(0)
    return page.locator("main").last.inner_text()


def test_a_w3c_trace_is_found_and_shown(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    nsqd.post(f"/topic/meta/update?topic={TOPIC}&upgradeext=true")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = f"00-{trace_id}-00f067aa0ba902b7-01"
    nsqd.post(f"/pub_ext?topic={TOPIC}&ext={quote(json.dumps({'traceparent': context}))}", b"dear")
    deadline_s = time.monotonic() + 60
    while context not in shown(page, installation.admin, trace_id):
        assert time.monotonic() < deadline_s
    heading = page.get_by_text(f"trace id {int(trace_id[16:], 16)}")
    expect(heading).to_be_visible()


@pytest.fixture
def with_table(installation: Installation, tmp_path: Path) -> Iterator[Admin]:
    """Its trace table is `tmp_path/trace`, which is not there yet."""
    asked = f"-nsqd-http-address=127.0.0.1:{installation.nsqd.http_port}"
    with Admin(tmp_path / "admin", asked, f"-trace-table={tmp_path / 'trace'}") as admin:
        yield admin


def keep_in_table(installation: Installation, path: Path) -> None:
    """What the pipeline `trace` does, of all that is in the log now."""
    port = installation.nsqd.http_port
    with BrokerApi(f"127.0.0.1:{port}") as api:
        topic = api.positions(["_trace"]).topics["_trace"]
        span = topic.partitions[0]
        batches = [
            events(body, 0, base_offset + number)
            for fetched in api.fetches("_trace", 0, topic.identity, span.earliest, span.end)
            for base_offset, bodies in bodies_of(bytes(fetched.data), fetched.base_offset)
            for number, body in enumerate(bodies)
        ]
    write_deltalake(path, pa.Table.from_batches(batches), partition_by=["date"])


def test_a_life_that_the_log_no_longer_holds(
    page: Page, installation: Installation, with_table: Admin, tmp_path: Path
) -> None:
    nsqd = installation.nsqd
    nsqd.post(f"/message/trace/enable?topic={TOPIC}")
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=post")
    nsqd.post(f"/pub?topic={TOPIC}", b"kept for long")
    with nsqd.client() as client:
        client.sub(TOPIC, "post")
        client.rdy(1)
        message = client.message()
        assert message is not None
        client.fin(message.id)
        client.settle()
    name = message.id.decode()
    deadline_s = time.monotonic() + 60
    while "finished" not in (text := shown(page, with_table, name)):
        assert time.monotonic() < deadline_s
    assert "the table can't be read" in text  # the log's part is shown all the same
    expect(page.locator(".source").first).to_have_text("from log")
    wait_for_log(installation)
    keep_in_table(installation, tmp_path / "trace")
    shown(page, with_table, name)
    expect(page.locator(".life li", has_text="published")).to_have_count(1)
    expect(page.locator(".source").first).to_have_text("from log and table")
    nsqd.post("/topic/delete?topic=_trace")
    text = shown(page, with_table, name)
    assert "has not traced anything" in text
    expect(page.locator(".source", has_text="from table").first).to_be_visible()
    for kind in ("published", "sent", "finished"):
        expect(page.locator(".life .badge", has_text=kind)).to_be_visible()
    assert "Neither the log nor the table" in shown(page, with_table, "7fffffff00000000")


def wait_for_log(installation: Installation) -> None:
    """Until all that is committed is in the log's files, where a pipeline finds it."""
    deadline_s = time.monotonic() + 60
    while True:
        _, body = installation.nsqd.http("GET", "/log/positions?topic=_trace")
        partition = json.loads(body)["topics"]["_trace"]["partitions"]["0"]
        if 0 < partition["end"] == partition["committed"]:
            return
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_one_partition_is_looked_at(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    nsqd.post("/topic/create?topic=split&partition_num=3")
    for partition in (0, 2):
        nsqd.post(f"/pubtrace?topic=split&partition={partition}&trace_id=654321", b"a")
    deadline_s = time.monotonic() + 60
    while "2 events" not in shown(page, installation.admin, "trace:654321"):
        assert time.monotonic() < deadline_s
    page.get_by_label("Only in partition").fill("2")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("status").filter(has_text="1 event")).to_be_visible()
    expect(page.locator(".life li")).to_have_count(1)
    expect(page.locator(".life li")).to_contain_text("partition 2 offset 0")
    expect(page).to_have_url(re.compile("partition=2"))
    page.get_by_label("Only in partition").fill("many")
    page.get_by_label("Only in partition").press("Enter")
    expect(page.get_by_text("'many' is no partition: 0 to 254")).to_be_visible()


def test_what_is_no_id_says_so(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "/trace?id=nonsense"))
    expect(page.get_by_text("'nonsense' is neither a message id")).to_be_visible()
