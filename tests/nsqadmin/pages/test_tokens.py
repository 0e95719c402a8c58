"""Tokens of programs on their page: made, shown once, used, removed, and by whom."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from penstock.nsqadmin.access import Role
from penstock.nsqadmin.store import Store

from ..running import Admin
from .test_login import log_in


@pytest.fixture
def store(guarded: Admin) -> Iterator[Store]:
    store = Store(guarded.data_path)
    yield store
    store.close()


def opened(page: Page, admin: Admin) -> None:
    log_in(page, admin, "dora", "/login?next=/tokens")
    expect(page.get_by_role("heading", name="Tokens")).to_be_visible()
    page.wait_for_function("window.did_handshake")


def make(page: Page, name: str, role: str = "") -> None:
    page.get_by_label("Name of the program").fill(name)
    if role:
        page.get_by_label("Role").click()
        page.get_by_role("option", name=f"{role}:").click()
    page.get_by_role("button", name="Make").click()


def get(admin: Admin, token: str) -> int:
    bearer = {"Authorization": f"Bearer {token}"}
    return admin.request("GET", "/api/topics", headers=bearer)[0]


def test_a_token_is_made_shown_once_and_removed(page: Page, guarded: Admin, store: Store) -> None:
    opened(page, guarded)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    make(page, "ci", "operate")
    token = str(page.locator(".shown-body").text_content())
    found = store.token(token)
    assert found is not None
    assert (found.name, found.role, found.used_s) == ("ci", Role.OPERATE, 0)
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("The token is copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == token
    row = page.locator(".heading", has_text="never used")
    expect(row).to_contain_text("operate")
    assert get(guarded, token) == 200
    page.reload()
    expect(page.locator(".heading", has_text="last used")).to_contain_text("ago")
    assert token not in page.content()
    page.get_by_role("button", name="Remove ci").click()
    page.get_by_label("Type ci to confirm").fill("ci")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("None yet.")).to_be_visible()
    assert get(guarded, token) == 401
    written = [one for one in store.audit() if one.action.endswith("_token")]
    assert [(one.action, one.target, one.detail, one.who, one.result) for one in written] == [
        ("remove_token", "ci", "", "dora", "ok"), ("put_token", "ci", "operate", "dora", "ok"),
    ]  # fmt: skip
    assert token not in json.dumps(store.audit())


def test_a_role_that_was_taken_away_makes_none(page: Page, guarded: Admin, store: Store) -> None:
    """The page is open still: its button asks again."""
    opened(page, guarded)
    lowered = "UPDATE users SET role = ? WHERE name = 'dora'"
    store._db.execute(lowered, ("view",))
    make(page, "late", "destroy")
    expect(page.get_by_text("You may not do this any more")).to_be_visible()
    assert store.tokens() == []
    assert [one.result for one in store.audit() if one.target == "late"] == [
        "failed: needs the role destroy"
    ]
    store._db.execute(lowered, ("destroy",))
