"""Two installations in the browser: going from one to the other, doing something in one, all at a
glance; below a base path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon

from ..conftest import Installation
from ..running import Admin
from .test_accessible import tab_to

BASE = "/mq"
SHARED, OWN = "both_have_it", "staging_has_it"


class Two(NamedTuple):
    prod: Installation
    staging: Daemon
    admin: Admin

    def go(self, page: Page, path: str) -> None:
        page.goto(f"http://127.0.0.1:{self.admin.http_port}{BASE}{path}")
        self.drawn(page)

    def drawn(self, page: Page) -> None:
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_function("window.did_handshake")


@pytest.fixture(scope="module")
def two(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    path = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        staging = stack.enter_context(Daemon(path / "staging"))
        for nsqd, names in ((installation.nsqd, [SHARED]), (staging, [SHARED, OWN])):
            for name in names:
                nsqd.post(f"/topic/create?topic={name}")
        installation.wait_for_topic(SHARED)
        admin = stack.enter_context(Admin(
            path / "admin", f"-base-path={BASE}", "-installation-name=prod",
            f"-lookupd-http-address=127.0.0.1:{installation.lookupd.http_port}",
            f"-installation=staging=nsqd:127.0.0.1:{staging.http_port}",
        ))  # fmt: skip
        yield Two(installation, staging, admin)
        installation.nsqd.post(f"/topic/delete?topic={SHARED}")


def _switch(page: Page, now: str, to: str) -> None:
    page.get_by_role("button", name=f"Installation {now}").click()
    page.get_by_role("navigation", name="Installations").get_by_role("link", name=to).click()


def _at(path: str) -> re.Pattern[str]:
    return re.compile(rf":\d+{BASE}{path}$")


def test_the_same_kind_of_page_in_the_other_by_the_keyboard(page: Page, two: Two) -> None:
    two.go(page, "/topics")
    expect(page).to_have_title("Topics · prod")
    expect(page.get_by_role("gridcell", name=SHARED)).to_be_visible()
    expect(page.get_by_role("gridcell", name=OWN)).to_have_count(0)
    tab_to(page, "prod")
    page.keyboard.press("Enter")
    tab_to(page, "staging")
    page.keyboard.press("Enter")
    expect(page).to_have_url(_at("/i/staging/topics"))
    two.drawn(page)
    expect(page.get_by_role("gridcell", name=OWN)).to_be_visible()
    page.get_by_role("link", name=OWN).click()
    expect(page).to_have_url(_at(f"/i/staging/topics/{OWN}"))
    expect(page.locator("h1")).to_have_text(OWN)
    two.drawn(page)
    _switch(page, "staging", "prod")  # which has no such topic
    expect(page).to_have_url(_at("/topics"))
    two.go(page, f"/topics/{SHARED}")
    _switch(page, "prod", "staging")
    expect(page).to_have_url(_at(f"/i/staging/topics/{SHARED}"))
    expect(page.get_by_role("link", name="Connections").first).to_have_attribute(
        "href", f"{BASE}/i/staging/connections"
    )
