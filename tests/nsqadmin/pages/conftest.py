"""A real Chromium for the tests of this folder: one browser, a page of its own for each test."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
WAIT_MS = 60_000  # two cores that others use too
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone with this folder's tests: while it is there, the thread has a running event loop."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.fail("the tests of nsqadmin's pages need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=2 * WAIT_MS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """What the browser's console says of errors and warnings fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    given: list[str] = []
    page.on("pageerror", lambda error: given.append(str(error)))
    page.on(
        "console",
        lambda message: (
            given.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    yield page
    context.close()
    assert given == []
