"""Logging in by an OIDC provider, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ..conftest import Installation
from ..provider import CLIENT_ID, SECRET, Provider
from ..running import Admin


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def guarded(installation: Installation, provider: Provider, tmp_path: Path) -> Iterator[Admin]:
    (tmp_path / "secret").write_text(SECRET)
    flags = (
        installation.of_nsqd,
        f"-oidc-issuer={provider.issuer}", f"-oidc-client-id={CLIENT_ID}",
        f"-oidc-client-secret-file={tmp_path / 'secret'}",
        "-oidc-redirect-url=http://127.0.0.1/login/oidc/callback",
        "-group-role=ops=operate",
    )  # fmt: skip
    with Admin(tmp_path / "admin", *flags) as admin:
        provider.port = admin.http_port
        yield admin


def test_in_and_out(page: Page, provider: Provider, guarded: Admin) -> None:
    page.goto(f"http://127.0.0.1:{guarded.http_port}/nodes")
    page.get_by_role("link", name="Log in with 127.0.0.1").click()
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
    page.get_by_role("button", name="ann@x.example").click()
    expect(page.get_by_text("ann@x.example may look and operate.")).to_be_visible()
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    page.goto(f"http://127.0.0.1:{guarded.http_port}/lookup")
    expect(page.get_by_role("heading", name="Lookup").first).to_be_visible()
    page.wait_for_function("window.did_handshake")  # before it a press of a button is lost
    page.get_by_role("button", name="ann@x.example").click()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log out of 127.0.0.1").click()
    expect(page.get_by_role("link", name="Log in with 127.0.0.1")).to_be_visible()
    assert [one["client_id"] for one in provider.left] == [CLIENT_ID]
    page.goto(f"http://127.0.0.1:{guarded.http_port}/nodes")
    expect(page.get_by_role("link", name="Log in with 127.0.0.1")).to_be_visible()
