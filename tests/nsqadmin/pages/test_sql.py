"""The SQL console in a real browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from ..conftest import Installation


def run(page: Page, text: str) -> None:
    page.get_by_label("Statement").fill(text)
    page.get_by_role("button", name="Run").click()


def test_a_statement_and_a_refusal(page: Page, installation: Installation) -> None:
    installation.nsqd.post("/pub?topic=console", b"seen here")
    page.goto(f"http://127.0.0.1:{installation.admin.http_port}/sql")
    run(page, "SELECT body, attempts FROM console")
    expect(page.get_by_role("gridcell", name="seen here")).to_be_visible()
    run(page, "SELECT * FROM read_text('/etc/passwd')")
    expect(page.get_by_text("file system operations are disabled")).to_be_visible()
    page.goto(f"http://127.0.0.1:{installation.admin.http_port}/audit")
    expect(page.get_by_role("gridcell", name="sql", exact=True).first).to_be_visible()
    installation.nsqd.post("/topic/delete?topic=console")


def test_a_statement_that_takes_too_much_is_stopped(page: Page, installation: Installation) -> None:
    page.goto(f"http://127.0.0.1:{installation.admin.http_port}/sql")
    run(page, "SELECT list(a) FROM range(1000000000) t(a)")
    expect(page.get_by_text("Out of Memory").or_(page.get_by_text("stopped"))).to_be_visible(
        timeout=60_000
    )
