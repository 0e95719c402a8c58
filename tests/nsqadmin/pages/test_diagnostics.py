"""The page that gathers a bundle, judges it and offers it."""

import zipfile

from playwright.sync_api import Page, expect

from ..conftest import Installation

TOPIC = "diagnosed"


def test_gather_see_and_download(page: Page, installation: Installation) -> None:
    base = f"http://127.0.0.1:{installation.admin.http_port}"
    with installation.topic(TOPIC, "forgotten", bodies=[b"body-that-stays-home"]):
        page.goto(f"{base}/diagnostics")
        page.wait_for_function("window.did_handshake")
        page.get_by_label("Seconds between samples").fill("1")
        page.get_by_role("button", name="Gather").click()
        expect(page.get_by_text("Gathered:")).to_be_visible()
        finding = page.locator(".finding", has_text=f"nobody reads channel {TOPIC}/forgotten")
        expect(finding).to_contain_text("1 message waits")
        expect(finding).to_contain_text("Warning")
        with page.expect_download() as started:
            page.get_by_role("link", name="Download penstock-bundle").first.click()
        assert started.value.suggested_filename.startswith("penstock-bundle-")
        with zipfile.ZipFile(started.value.path()) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        assert "nsqadmin/attention.json" in files
        assert [name for name, data in files.items() if b"body-that-stays-home" in data] == []
        page.reload()  # it is still there
        finding.get_by_role("link").click()
        expect(page.locator("h1")).to_have_text("forgotten")
        page.goto(f"{base}/audit")
        expect(page.get_by_text("gather_diagnostics").first).to_be_visible()
