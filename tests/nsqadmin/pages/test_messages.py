"""Browsing what is stored, in a real browser."""

from __future__ import annotations

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


def test_the_newest_are_shown_as_text_and_hex(page: Page, installation: Installation) -> None:
    page.goto(url(installation))
    expect(page.get_by_text("50 messages from offset 72")).to_be_visible()
    page.goto(url(installation, "?at=120"))
    page.get_by_role("gridcell", name=EVIL.decode()).click()
    expect(page.locator("pre.body")).to_have_text(EVIL.decode())
    page.get_by_role("gridcell", name="0x000102").click()
    expect(page.locator("pre.body")).to_contain_text("000000f0")


def test_earlier_and_later(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=60"))
    expect(page.get_by_text("from offset 60")).to_be_visible()
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_text("50 messages from offset 10")).to_be_visible()
    page.get_by_role("button", name="Later").click()
    expect(page.get_by_text("from offset 60")).to_be_visible()


def test_found_by_text_and_by_id(page: Page, installation: Installation) -> None:
    _, body = installation.nsqd.http("GET", f"/message/get?topic={TOPIC}&offset=33")
    message = json.loads(body)
    page.goto(url(installation, "?at=oldest"))
    page.get_by_label("Contains").fill('"number": 77')
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("1 message from offset 0, searched up to offset 122")).to_be_visible()
    page.get_by_label("Contains").fill("")
    page.get_by_label("Offset, time, id").fill(message["id"])
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("from offset 33")).to_be_visible()
    page.get_by_role("gridcell", name=message["id"]).click()
    expect(page.locator("pre.body")).to_contain_text('"number": 33,')


def test_a_place_that_is_none_says_what_would_be(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=nonsense"))
    expect(page.get_by_text("'nonsense' is not an offset")).to_be_visible()


def test_publishing_one(page: Page, installation: Installation) -> None:
    page.goto(url(installation))
    page.get_by_role("button", name="Publish one").click()
    page.get_by_label("Body").fill("by hand")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("gridcell", name="by hand")).to_be_visible()


def test_downloading(page: Page, installation: Installation) -> None:
    page.goto(url(installation, "?at=121"))
    page.get_by_role("gridcell", name="0x000102").click()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the body").click()
    assert Path(waiting.value.path()).read_bytes() == bytes(range(256))


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
        expect(page.get_by_text("0 messages from offset 0")).to_be_visible()
        page.goto("about:blank")  # before its server goes
        status, body, _ = admin.request("GET", f"/download/{TOPIC}?node={node}&offset=5")
        assert (status, json.loads(body)) == (200, {"number": 5, "card": "•••"})
        assert admin.request("GET", f"/download/{TOPIC}?node=elsewhere:1&offset=5")[0] == 404
