"""The SQL console in a real browser."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from ..conftest import Installation


def run(page: Page, text: str) -> None:
    page.get_by_label("Statement").fill(text)
    page.get_by_role("button", name="Run").click()


def test_a_statement_and_a_refusal(page: Page, installation: Installation) -> None:
    with installation.topic("console", bodies=[b"seen here"]):
        page.goto(installation.admin.url("/sql"))
        run(page, "SELECT body, attempts FROM console")
        expect(page.get_by_role("gridcell", name="seen here")).to_be_visible()
        run(page, "SELECT * FROM read_text('/etc/passwd')")
        expect(page.get_by_text("file system operations are disabled")).to_be_visible()
        page.goto(installation.admin.url("/audit?since=never"))
        expect(page.get_by_text("'never' is no time")).to_be_visible()
        expect(page.get_by_role("button", name="Older")).to_be_disabled()
        page.goto(installation.admin.url("/audit"))
        expect(page.get_by_role("gridcell", name="sql", exact=True).first).to_be_visible()


def test_writing_with_help_and_keeping_what_came(page: Page, installation: Installation) -> None:
    topic = "helped.by"
    with installation.topic(topic, bodies=[b"seen here"]):
        page.goto(installation.admin.url(f"/sql?topic={topic}"))
        field = page.get_by_label("Statement")
        expect(field).to_have_value(re.compile(f'FROM "{topic}"'))
        field.press("Control+Enter")
        expect(page.get_by_text("messages (bigint)")).to_be_visible()
        expect(page.get_by_text(re.compile(r"1 row; [\d.]+ s"))).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download as CSV").click()
        assert Path(waiting.value.path()).read_text().startswith("messages,oldest,newest\n1,")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download as JSON").click()
        assert json.loads(Path(waiting.value.path()).read_bytes())[0]["messages"] == 1
        field.fill("SELECT nowhere FROM ")
        page.locator(".things").get_by_role("button", name=topic).click()
        expect(field).to_have_value(f'SELECT nowhere FROM "{topic}"')
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".fault")).to_contain_text("^^^^")
        page.get_by_role("button", name="Recent").click()
        page.get_by_text("SELECT count(*)").last.click()
        expect(field).to_have_value(re.compile("count"))
