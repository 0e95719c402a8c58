"""Logging in, and what those who may not do things can't do, by page or by hand-made requests."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cases import each
from e2e.answering import served
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.gate import COOKIE

from ..conftest import Installation
from ..provider import CLIENT_ID, Provider, flags_of
from ..running import PASSWORD, Admin, with_users


def log_in(page: Page, admin: Admin, name: str, path: str = "/login") -> None:
    page.goto(admin.url(path))
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def cookie_of(admin: Admin, name: str) -> str:
    """Of a log-in by hand."""
    return admin.log_in(name)[1]["set-cookie"].partition(";")[0]


def test_a_page_leads_to_the_log_in_and_back(page: Page, guarded: Admin) -> None:
    log_in(page, guarded, "vera", "/trace?id=nonsense")
    expect(page.get_by_label("Message id, or trace:N")).to_have_value("nonsense")
    page.get_by_role("button", name="vera").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto(guarded.url("/nodes"))
    expect(page.get_by_label("Password")).to_be_visible()


def test_creating_and_removing_a_user_is_audited(page: Page, guarded: Admin) -> None:
    log_in(page, guarded, "dora")
    page.goto(guarded.url("/users"))
    page.get_by_label("Name").fill("new")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("new", exact=True)).to_be_visible()
    assert guarded.log_in("new")[0] == 303
    page.get_by_role("button", name="Remove new").click()
    page.get_by_label("Type new to confirm").fill("new")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("new", exact=True)).to_have_count(0)
    assert guarded.log_in("new")[0] == 401
    page.goto(guarded.url("/audit"))
    expect(page.get_by_role("gridcell", name="put_user").first).to_be_visible()
    page.get_by_label("Search the log").fill("remove_user")
    expect(page.get_by_role("gridcell", name="put_user")).to_have_count(0)
    expect(page.get_by_role("gridcell", name="remove_user").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?q=remove_user"))


def test_one_changes_ones_own_password_and_other_sessions_end(page: Page, guarded: Admin) -> None:
    with_users(guarded.data_path, carla=Role.VIEW)
    elsewhere = cookie_of(guarded, "carla")
    log_in(page, guarded, "carla")
    page.get_by_role("button", name="carla").click()
    page.get_by_role("link", name="Your account").click()
    for old, text in (("wrong", "wrong name or password"), (PASSWORD, "Done.")):
        page.get_by_label("Password so far").fill(old)
        page.get_by_label("New password", exact=True).fill("another horse")
        page.get_by_label("New password again").fill("another horse")
        page.get_by_role("button", name="Change").click()
        expect(page.get_by_text(text)).to_be_visible()
    assert guarded.log_in("carla")[0] == 401
    assert guarded.log_in("carla", "another horse")[0] == 303
    assert guarded.request("GET", "/api/topics", headers={"Cookie": elsewhere})[0] == 401
    page.goto(guarded.url("/topics"))
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()


def test_a_session_is_ended_by_hand(page: Page, guarded: Admin) -> None:
    cookie = cookie_of(guarded, "otto")
    assert guarded.request("GET", "/api/topics", headers={"Cookie": cookie})[0] == 200
    log_in(page, guarded, "dora")
    page.goto(guarded.url("/users"))
    expect(page.get_by_text("this browser").first).to_be_visible()
    ends = page.get_by_role("button", name="End the session of otto")
    while ends.count():
        count = ends.count()
        ends.first.click()
        expect(ends).to_have_count(count - 1)
    assert guarded.request("GET", "/api/topics", headers={"Cookie": cookie})[0] == 401


def test_a_log_in_begins_a_new_session(guarded: Admin) -> None:
    """A cookie that somebody has planted before stays worthless."""
    planted = f"{COOKIE}=planted"
    _, headers = guarded.log_in("vera", Cookie=planted)
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert guarded.request("GET", "/api/nodes", headers={"Cookie": planted})[0] == 401


def test_a_log_in_from_another_site_is_refused(guarded: Admin) -> None:
    status, headers = guarded.log_in("vera", Origin="http://evil.example")
    assert status == 403
    assert "set-cookie" not in headers


@each(
    "target",
    [
        "//evil.example", "///evil.example", "https://evil.example", "/\\evil.example", "\\\\evil",
        "javascript:alert(1)", "/\t/evil.example", "/\r\nSet-Cookie: a=b", "evil.example", "",
    ],
)  # fmt: skip
def test_a_login_redirects_to_own_pages_only(guarded: Admin, target: str) -> None:
    assert guarded.log_in("vera", target=target)[1]["location"] == "/"


def test_anonymous_clients_beyond_loopback_are_viewers(
    installation: Installation, tmp_path: Path
) -> None:
    with Admin(tmp_path / "admin", installation.of_nsqd, "-http-address=0.0.0.0:0") as admin:
        assert admin.request("GET", "/api/topics")[0] == 200
        assert admin.request("POST", "/api/topics", {"topic": "by_stranger"})[0] == 403


# --- a session lasts while a person does something, and no longer ---


LIFETIME_S = 12


@pytest.fixture
def admin(installation: Installation, tmp_path: Path) -> Iterator[Admin]:
    path = with_users(tmp_path / "admin", ann=Role.VIEW)
    with Admin(path, installation.of_nsqd, f"-session-lifetime={LIFETIME_S}s") as admin:
        yield admin


def test_activity_extends_a_session_and_an_open_page_does_not(page: Page, admin: Admin) -> None:
    log_in(page, admin, "ann")
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
    page.wait_for_url(admin.url("/login?next=/"))
    assert LIFETIME_S / 2 < time.monotonic() - idle_s < 3 * LIFETIME_S


# --- logging in by an OIDC provider ---


provider = served(Provider)


@pytest.fixture
def by_provider(installation: Installation, provider: Provider, tmp_path: Path) -> Iterator[Admin]:
    flags = flags_of(provider, tmp_path)
    with Admin(tmp_path / "admin", installation.of_nsqd, *flags) as admin:
        provider.browser_port = admin.http_port
        yield admin


def test_login_and_logout(page: Page, provider: Provider, by_provider: Admin) -> None:
    page.goto(f"http://127.0.0.1:{by_provider.http_port}/nodes")
    page.get_by_role("link", name="Log in with 127.0.0.1").click()
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
    page.get_by_role("button", name="ann@x.example").click()
    expect(page.get_by_text("ann@x.example may look and operate.")).to_be_visible()
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    page.goto(f"http://127.0.0.1:{by_provider.http_port}/lookup")
    expect(page.get_by_role("heading", name="Lookup").first).to_be_visible()
    page.wait_for_function("window.did_handshake")  # before it a press of a button is lost
    page.get_by_role("button", name="ann@x.example").click()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log out of 127.0.0.1").click()
    expect(page.get_by_role("link", name="Log in with 127.0.0.1")).to_be_visible()
    assert [one["client_id"] for one in provider.left] == [CLIENT_ID]
    page.goto(f"http://127.0.0.1:{by_provider.http_port}/nodes")
    expect(page.get_by_role("link", name="Log in with 127.0.0.1")).to_be_visible()
