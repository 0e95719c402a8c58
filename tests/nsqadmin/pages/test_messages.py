"""Browsing what is stored, in a real browser."""

from __future__ import annotations

import base64
import json
import re
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
    nsqd = installation.nsqd
    nsqd.post(f"/topic/create?topic={TOPIC}")
    for number in range(120):
        nsqd.post(f"/pub?topic={TOPIC}", json.dumps({"number": number, "card": "4711"}).encode())
    nsqd.post(f"/pub?topic={TOPIC}", EVIL)
    nsqd.post(f"/pub?topic={TOPIC}", bytes(range(256)))
    installation.wait_for_topic(TOPIC)
    yield
    nsqd.post(f"/topic/delete?topic={TOPIC}")


def url(installation: Installation, query: str = "") -> str:
    return f"http://127.0.0.1:{installation.admin.http_port}/messages/{TOPIC}{query}"


def test_the_newest_come_first_and_a_body_is_text_or_hex(
    page: Page, installation: Installation
) -> None:
    page.goto(url(installation))
    expect(page.get_by_text("100 messages, offset 22 to 121")).to_be_visible()
    expect(page.locator("[row-index='0'] [col-id=offset]")).to_have_text("121")
    page.get_by_role("gridcell", name="0x000102").click()
    expect(page.locator("pre.body")).to_contain_text("000000f0")
    page.goto(url(installation, "?at=120"))
    page.get_by_role("gridcell", name=EVIL.decode()).click()
    expect(page.locator("pre.body")).to_have_text(EVIL.decode())


def test_earlier_and_later(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=110"))
    expect(page.get_by_text("12 messages, offset 110 to 121")).to_be_visible()
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_text("100 messages, offset 10 to 109")).to_be_visible()
    page.get_by_role("button", name="Later").click()
    expect(page.get_by_text("12 messages, offset 110 to 121")).to_be_visible()
    page.get_by_role("button", name="Later").click()
    expect(page.get_by_text("There is nothing later yet.")).to_be_visible()
    expect(page.get_by_text("12 messages, offset 110 to 121")).to_be_visible()


def test_found_by_text_by_terms_and_by_id(page: Page, installation: Installation) -> None:
    _, body = installation.nsqd.http("GET", f"/message/get?topic={TOPIC}&offset=33")
    message = json.loads(body)
    page.goto(url(installation, "?at=oldest"))
    page.get_by_label("Contains").fill('"number": 77')
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("1 message, offset 77; searched 122 messages up to")).to_be_visible()
    expect(page.get_by_text("that is all so far")).to_be_visible()
    page.get_by_label("Contains").fill("")
    page.get_by_label("Where, such as").fill("number>=98 card=4711")
    page.get_by_label("Where, such as").press("Enter")
    expect(page.get_by_text("22 messages, offset 98 to 119")).to_be_visible()
    page.get_by_label("Where, such as").fill("number")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("'number' is no term")).to_be_visible()
    page.get_by_label("Where, such as").fill("")
    page.get_by_label("From: newest").fill(message["id"])
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("offset 33 to 121")).to_be_visible()
    page.get_by_role("gridcell", name=message["id"]).click()
    expect(page.locator("pre.body")).to_contain_text('"number": 33,')


def test_the_address_leads_to_an_open_message_and_keys_to_the_next(
    page: Page, installation: Installation
) -> None:
    page.goto(url(installation, "?at=oldest&open=5"))
    expect(page.get_by_role("heading", name="Offset 5")).to_be_visible()
    expect(page.get_by_text("The topic has no channel.")).to_be_visible()
    page.get_by_role("gridcell", name='"number": 7').click()
    expect(page.get_by_role("heading", name="Offset 7")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", name="Offset 8")).to_be_visible()
    expect(page).to_have_url(re.compile("open=8"))
    page.reload()
    expect(page.get_by_role("heading", name="Offset 8")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("heading", name="Offset 8")).to_have_count(0)


def test_following_shows_what_comes_until_it_is_stopped(
    page: Page, installation: Installation
) -> None:
    nsqd, topic = installation.nsqd, "followed"
    nsqd.post(f"/pub?topic={topic}", b"before")
    installation.wait_for_topic(topic)
    page.goto(f"http://127.0.0.1:{installation.admin.http_port}/messages/{topic}")
    expect(page.get_by_role("gridcell", name="before")).to_be_visible()
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("Following: 1 message of the newest 500")).to_be_visible()
    nsqd.post(f"/pub?topic={topic}", b"while watched")
    expect(page.get_by_role("gridcell", name="while watched")).to_be_visible()
    expect(page.locator("[row-index='0'] [col-id=preview]")).to_have_text("while watched")
    page.get_by_role("button", name="Stop following").click()
    expect(page.get_by_text("2 messages, offset 0 to 1")).to_be_visible()
    nsqd.post(f"/topic/delete?topic={topic}")


def test_publishing_again_into_another_topic(page: Page, installation: Installation) -> None:
    nsqd, topic = installation.nsqd, "copied"
    page.goto(url(installation, "?at=121&open=121"))  # bytes that are no text
    page.get_by_role("button", name="Publish again").click()
    page.get_by_label("To topic").fill(topic)
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Done.")).to_be_visible()
    _, body = nsqd.http("GET", f"/message/get?topic={topic}&offset=0")
    assert base64.b64decode(json.loads(body)["body_base64"]) == bytes(range(256))
    nsqd.post(f"/topic/delete?topic={topic}")


def test_where_a_message_stands_in_each_channel(page: Page, installation: Installation) -> None:
    nsqd, topic = installation.nsqd, "standing"
    nsqd.post(f"/topic/create?topic={topic}")
    for channel in ("done", "held", "idle"):
        nsqd.post(f"/channel/create?topic={topic}&channel={channel}")
    nsqd.post(f"/pub?topic={topic}", b"once")
    with nsqd.client() as client, nsqd.client() as holder:
        client.sub(topic, "done")
        client.rdy(1)
        message = client.message()
        assert message is not None
        client.fin(message.id)
        client.settle()
        holder.sub(topic, "held")
        holder.rdy(1)
        assert holder.message() is not None
        installation.wait_for_topic(topic)
        base = f"http://127.0.0.1:{installation.admin.http_port}"
        page.goto(f"{base}/messages/{topic}?at=0&open=0")
        for channel, state in (("done", "finished"), ("held", "in flight"), ("idle", "waiting")):
            row = page.locator(".pane .heading", has=page.get_by_role("link", name=channel))
            expect(row.locator(".badge")).to_have_text(state)
        expect(page.get_by_text("1 attempt, with")).to_be_visible()
    nsqd.post(f"/topic/delete?topic={topic}")


def test_a_place_that_is_none_says_what_would_be(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=nonsense"))
    expect(page.get_by_text("'nonsense' is not an offset")).to_be_visible()


def test_publishing_one(page: Page, installation: Installation) -> None:
    page.goto(url(installation))
    page.get_by_role("button", name="Publish one").click()
    page.get_by_label("Body").fill("by hand")
    page.get_by_label("Deferred by, ms").fill("99999999")
    page.get_by_role("button", name="Publish", exact=True).click()
    # What is refused is said in words, and nothing that was typed is lost.
    expect(page.get_by_text("the delay is negative, or longer than its")).to_be_visible()
    expect(page.get_by_label("Body")).to_have_value("by hand")
    page.get_by_label("Deferred by, ms").fill("0")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("gridcell", name="by hand")).to_be_visible()


def test_downloading(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=121"))
    page.get_by_role("gridcell", name="0x000102").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the body").click()
    assert Path(waiting.value.path()).read_bytes() == bytes(range(256))


def test_downloading_what_is_shown(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=118&where=size!=31 size!=7"))
    expect(page.get_by_text(re.compile("offset 120 to 121"))).to_be_visible()
    page.get_by_role("button", name="Download …").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download", exact=True).click()
    lines = Path(waiting.value.path()).read_bytes().splitlines()
    assert waiting.value.suggested_filename == f"{TOPIC}.jsonl"
    found = [json.loads(line) for line in lines]
    assert [one["offset"] for one in found] == [120, 121]
    assert found[0]["body"] == EVIL.decode()
    assert base64.b64decode(found[1]["body_base64"]) == bytes(range(256))


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
        for span in ("elsewhere:1,0,9", f"{node},0", f"{node},-1,9", "x"):
            path = f"/download/{TOPIC}/messages?span={span}"
            assert admin.request("GET", path)[0] in (400, 404)
        assert admin.request("GET", f"/download/{TOPIC}?node=elsewhere:1&offset=5")[0] == 404
