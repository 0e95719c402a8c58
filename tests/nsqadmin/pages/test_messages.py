"""Browsing what is stored, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ..conftest import Installation
from ..running import Admin

TOPIC = "parcels"
EVIL = b"<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def parcels(installation: Installation) -> Iterator[None]:
    bodies = [json.dumps({"number": number, "card": "4711"}).encode() for number in range(120)]
    with installation.topic(TOPIC, bodies=[*bodies, EVIL, bytes(range(256))]):
        yield


def url(installation: Installation, query: str = "") -> str:
    return installation.admin.url(f"/messages/{TOPIC}{query}")


def test_searches_by_text_terms_and_id(page: Page, installation: Installation) -> None:
    _, body = installation.nsqd.http("GET", f"/message/get?topic={TOPIC}&offset=33")
    message = json.loads(body)
    page.goto(url(installation, "?at=oldest"))
    page.get_by_label("Contains").fill('"number": 77')
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("1 message, offset 77; searched 122 messages up to")).to_be_visible()
    expect(page.get_by_text("that is all so far")).to_be_visible()
    page.get_by_label("Contains").fill("")
    page.get_by_label("Where, such as").fill("number")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("'number' is no term")).to_be_visible()
    page.get_by_label("Where, such as").fill("")
    page.get_by_label("From: newest").fill(message["id"])
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("offset 33 to 121")).to_be_visible()
    page.get_by_role("gridcell", name=message["id"]).click()
    expect(page.locator("pre.body")).to_contain_text('"number": 33,')


def test_where_a_message_stands_in_each_channel(page: Page, installation: Installation) -> None:
    topic = "standing"
    with (
        installation.topic(topic, "done", "held", "idle", bodies=[b"once"]) as nsqd,
        nsqd.client() as client,
        nsqd.client() as holder,
    ):
        client.sub(topic, "done")
        client.rdy(1)
        message = client.message()
        assert message is not None
        client.fin(message.id)
        client.settle()
        holder.sub(topic, "held")
        holder.rdy(1)
        assert holder.message() is not None
        page.goto(installation.admin.url(f"/messages/{topic}?at=0&open=0"))
        for channel, state in (("done", "finished"), ("held", "in flight"), ("idle", "waiting")):
            row = page.locator(".pane .heading", has=page.get_by_role("link", name=channel))
            expect(row.locator(".badge")).to_have_text(state)
        expect(page.get_by_text("1 attempt, with")).to_be_visible()


def test_publishing_a_message(page: Page, installation: Installation) -> None:
    page.goto(url(installation))
    page.get_by_role("button", name="Publish one").dblclick()
    page.get_by_label("Body").fill("by hand")
    page.get_by_label("Deferred by, ms").fill("99999999")
    page.get_by_role("button", name="Publish", exact=True).click()
    # What is refused is said in words, and nothing that was typed is lost.
    expect(page.get_by_text("the delay is negative, or longer than its")).to_be_visible()
    expect(page.get_by_label("Body")).to_have_value("by hand")
    page.get_by_label("Deferred by, ms").fill("0")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("gridcell", name="by hand")).to_be_visible()


def test_masked_fields_are_neither_shown_nor_found_nor_downloaded(
    page: Page, installation: Installation, tmp_path: Path
) -> None:
    node = f"127.0.0.1:{installation.nsqd.http_port}"
    with Admin(tmp_path / "admin", f"-nsqd-http-address={node}", "-mask-field=card") as admin:
        base = f"http://127.0.0.1:{admin.http_port}"
        page.goto(f"{base}/messages/{TOPIC}?at=5")
        page.get_by_role("gridcell", name='"number": 5').click()
        expect(page.locator("pre.body")).to_contain_text("•••")
        expect(page.get_by_text("4711")).to_have_count(0)
        page.goto(f"{base}/messages/{TOPIC}?at=oldest&contains=4711")
        expect(page.get_by_text("0 messages; searched 12")).to_be_visible()
        page.goto(f"{base}/messages/{TOPIC}?at=oldest&where=card%3D4711")
        expect(page.get_by_text("0 messages; searched 12")).to_be_visible()
        page.goto("about:blank")  # before its server goes
        status, body, _ = admin.request("GET", f"/download/{TOPIC}?node={node}&offset=5")
        assert (status, json.loads(body)) == (200, {"number": 5, "card": "•••"})
        for form in ("lines", "bodies"):
            path = f"/download/{TOPIC}/messages?span={node},0,999&form={form}"
            status, body, _ = admin.request("GET", path)
            assert (status, body.count("•••".encode()), b'"4711' in body) == (200, 120, False)
