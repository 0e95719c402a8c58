"""How long a session lasts with a page open: as long as a person does something, and no longer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from penstock.nsqadmin.access import Role
from penstock.nsqadmin.gate import COOKIE

from ..conftest import Installation
from ..running import PASSWORD, Admin, with_users

LIFETIME_S = 12


@pytest.fixture
def admin(installation: Installation, tmp_path: Path) -> Iterator[Admin]:
    path = with_users(tmp_path / "admin", ann=Role.VIEW)
    with Admin(path, installation.of_nsqd, f"-session-lifetime={LIFETIME_S}s") as admin:
        yield admin


def test_a_person_goes_on_and_an_open_page_does_not(page: Page, admin: Admin) -> None:
    base = f"http://127.0.0.1:{admin.http_port}"
    page.goto(f"{base}/login")
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    begun_s = time.monotonic()
    (first,) = [one for one in page.context.cookies() if one.get("name") == COOKIE]
    while time.monotonic() - begun_s < 1.5 * LIFETIME_S:
        page.keyboard.press("Tab")
        page.wait_for_timeout(500)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    (cookie,) = [one for one in page.context.cookies() if one.get("name") == COOKIE]
    assert cookie["expires"] > first["expires"] + LIFETIME_S / 2
    assert cookie["value"] == first["value"]
    # The page goes on showing what its socket brings, which is nobody's doing.
    idle_s = time.monotonic()
    page.wait_for_url(f"{base}/login?next=/")
    assert LIFETIME_S / 2 < time.monotonic() - idle_s < 3 * LIFETIME_S
