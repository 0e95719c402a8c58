"""Runs of pipelines in a real browser: reports by the module that reports, and a real archive and
audit on Spark."""

import io
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect

from penstock.pipelines import archive
from penstock.pipelines.progress import Progress
from penstock.pipelines.reporter import reported
from penstock.pipelines.runs import Report
from pipelines.sample import defaults

from ..conftest import Installation

EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@contextmanager
def running(installation: Installation, name: str, **changed: Any) -> Iterator[Progress]:
    """A run that does nothing but report."""
    url = f"http://127.0.0.1:{installation.nsqd.http_port}"
    chosen = {"url": url, "table": f"/lake/{name}", "topics": ("orders",)} | changed
    settings = defaults(archive.SETTINGS, **chosen)
    progress = Progress(name, 0, io.StringIO())
    with reported(archive.PIPELINE, name, settings, progress):
        progress.note(phase="running", table=chosen["table"])
        yield progress


def row(page: Page, name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_run_is_followed_from_its_start_to_its_failure(
    page: Page, installation: Installation
) -> None:
    secret = "AWS_SECRET_ACCESS_KEY=hunter22"
    with running(installation, "nightly", storage_option=(secret,)) as progress:
        progress.note(checkpoint="/lake/c", batch=3, committed_s=1.0, version_of=lambda: 12)
        progress.note(logs={("orders", 0): (300, 400)})
        progress.report(Report(300, 25.0, lag_rows=100, lag_seconds=4.0, left_seconds=4.0))
        page.goto(installation.admin.url("/pipelines?pipeline=archive"))
        found = row(page, "nightly")
        expect(found).to_contain_text("running")
        expect(found).to_contain_text("75 %")
        expect(found).to_contain_text("25/s")
        page.get_by_role("link", name="nightly", exact=True).click()
        expect(page.locator(".badge")).to_have_text("running")
        listed = installation.admin.json("GET", "/api/pipelines?pipeline=archive")["runs"]
        (document,) = [one for one in listed if one["name"] == "nightly"]
        assert (document["phase"], document["lag_rows"], document["done_share"]) == (
            "running",
            100,
            0.75,
        )
        assert document["logs"] == [{"topic": "orders", "partition": 0, "at": 300, "end": 400}]
        whole = installation.admin.json("GET", f"/api/pipelines/{document['run']}")
        assert whole["points"][-1]["lag_rows"] == 100
        assert "--table=/lake/nightly" in whole["command"]
        assert "hunter22" not in json.dumps(whole)
        assert installation.admin.request("GET", "/api/pipelines/no-such-run")[0] == 404
        expect(page.locator(".tile", has_text="Behind")).to_contain_text("100")
        expect(page.locator(".tile", has_text="Last commit")).to_contain_text("batch 3")
        expect(page.get_by_text("/lake/nightly (version 12)")).to_be_visible()
        expect(page.get_by_role("gridcell", name="orders")).to_be_visible()
        command = page.locator(".command")
        expect(command).to_contain_text(
            "--table=/lake/nightly --storage-option='AWS_SECRET_ACCESS_KEY=***'"
        )
        progress.report(Report(400, 25.0, lag_rows=0))
        counted = page.locator(".tile").filter(has=page.get_by_text("Messages", exact=True))
        expect(counted).to_contain_text("400")
        progress.end("failed", 1, "nsqd refuses hunter22")
    expect(page.locator(".badge")).to_have_text("failed")
    expect(page.get_by_text("nsqd refuses ***")).to_be_visible()
    assert "hunter22" not in page.content()
    page.goto(installation.admin.url("/"))
    page.get_by_role("link", name="pipeline nightly failed").click()
    expect(page.get_by_role("heading", name="nightly")).to_be_visible()
    page.goto(installation.admin.url("/"))
    page.get_by_role("link", name="Pipelines:").click()
    expect(page.get_by_role("status").filter(has_text="failed")).to_be_visible()


def test_pages_of_a_run_are_sandboxed(browser: Browser, installation: Installation) -> None:
    with running(installation, f"evil {EVIL}", table=f"/lake/{EVIL}") as progress:
        progress.note(pages=(("html", f"<h1>seen</h1>{EVIL}"), ("json", "{}")), outcome=EVIL)
        progress.say(EVIL)
        progress.end("failed", 1, EVIL)
    context = browser.new_context()
    page = context.new_page()  # Chromium tells the console what it has not allowed
    page.goto(installation.admin.url("/pipelines"))
    page.get_by_role("link", name="evil").click()
    expect(page.frame_locator("iframe").get_by_role("heading", name="seen")).to_be_visible()
    expect(page.locator("h1").first).to_contain_text("<img src=x onerror=")
    assert page.locator("iframe").get_attribute("sandbox") == ""
    assert page.title() != "taken"
    address = page.url + "/report"
    page.goto(address)
    expect(page.get_by_role("heading", name="seen")).to_be_visible()
    assert page.title() != "taken"
    with urllib.request.urlopen(address) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert policy.split("; ")[0] == "default-src 'none'"
        assert "sandbox" in policy.split("; ")
        assert "script" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    context.close()
