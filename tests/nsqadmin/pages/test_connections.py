"""Every connection in a table: found, narrowed by the address, moving, and quick with thousands."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from ..conftest import Installation


def url(installation: Installation, query: str = "") -> str:
    return installation.admin.url(f"/connections{query}")


def row(page: Page, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text)


def cell(page: Page, text: str, column: str) -> Any:
    """Of the first row with this text: the grid is wide, and draws only what is near."""
    return row(page, text).first.locator(f"[col-id={column}]")


def test_a_consumer_and_a_producer_live(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    page.set_viewport_size({"width": 2200, "height": 900})
    with nsqd.client() as consumer, nsqd.client() as producer:
        consumer.identify(client_id="reader", hostname="till-7", user_agent="test/1")
        producer.identify(client_id="writer", hostname="till-8", user_agent="test/2")
        consumer.sub("wired", "mail")
        producer.pub("wired", b"one")
        page.goto(url(installation, "?topic=wired"))
        expect(cell(page, "reader (till-7)", "reads")).to_have_text("wired/mail")
        expect(cell(page, "writer (till-8)", "published")).to_have_text("1")
        expect(cell(page, "reader (till-7)", "in_flight")).to_have_text("0")
        consumer.rdy(5)
        expect(cell(page, "reader (till-7)", "in_flight")).to_have_text("1")
        expect(cell(page, "reader (till-7)", "ready")).to_have_text("5")
        producer.close()
        expect(row(page, "writer (till-8)")).to_have_count(0)
        page.get_by_label("Kind of connection").click()
        page.get_by_role("option", name="Idle").click()
        expect(row(page, "reader (till-7)")).to_have_count(0)
        page.wait_for_url("**kind=idle*")
        assert parse_qs(urlsplit(page.url).query) == {"topic": ["wired"], "kind": ["idle"]}
    nsqd.post("/topic/delete?topic=wired")
