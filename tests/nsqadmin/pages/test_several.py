"""Two installations in the browser: going from one to the other, doing something in one, all at a
glance; below a base path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon

from ..conftest import Installation
from ..running import Admin
from .test_accessible import PHONE, faults, tab_to

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


def test_what_is_done_lands_there_and_is_written_down_there(page: Page, two: Two) -> None:
    two.go(page, f"/i/staging/topics/{SHARED}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".badge", has_text="paused")).to_be_visible()

    def is_paused(place: str) -> bool:
        path = f"{BASE}{place}/api/topics/{SHARED}"
        return bool(json.loads(two.admin.request("GET", path)[1])["paused"])

    assert is_paused("/i/staging")
    assert not is_paused("")
    two.go(page, "/audit")
    row = page.get_by_role("row").filter(has_text="pause_topic")
    expect(row.get_by_role("gridcell", name="staging")).to_be_visible()
    page.get_by_role("combobox", name="Installation").click()
    page.get_by_role("option", name="prod").click()
    expect(row).to_have_count(0)


@pytest.mark.timeout(240)
def test_all_at_a_glance_for_everybody(page: Page, two: Two) -> None:
    two.go(page, "/i/staging/installations")
    cards = page.locator(".sites .panel")
    expect(cards).to_have_count(2)
    staging = cards.filter(has=page.get_by_role("link", name="staging"))
    expect(staging.locator(".tile", has_text="Nodes")).to_contain_text("1 of 1")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.get_by_role("button", name="Installation staging").click()
        expect(page.get_by_role("link", name="All at a glance")).to_be_visible()
        assert faults(page, ".bar") + faults(page, "#content") == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name="All at a glance")).to_be_hidden()
    page.set_viewport_size(PHONE)
    for path in ("/installations", "/i/staging/topics"):
        two.go(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Installation staging").click()
    page.get_by_role("link", name="All at a glance").click()
    two.drawn(page)
    two.staging.kill()
    expect(cards.first).to_contain_text("unreachable")
    expect(cards.first).to_contain_text("staging")
    expect(cards.nth(1)).to_contain_text("prod")
