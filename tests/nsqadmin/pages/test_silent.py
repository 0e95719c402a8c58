"""A run whose driver is killed: it says nothing any more, and that is seen. The minute that this
takes is shortened on both sides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ..conftest import Installation
from ..running import Admin

_RUN = """
import io, sys, time
from penstock import limits
limits.RUN_ALIVE_S = 0.2
from penstock.pipelines import archive
from penstock.pipelines.progress import Progress
from penstock.pipelines.reporter import reported
from penstock.pipelines.settings import defaults
settings = defaults(archive.SETTINGS, url=sys.argv[1], table="/lake/killed", topics=("orders",))
progress = Progress("killed", 0, io.StringIO())
with reported(archive.PIPELINE, "killed", settings, progress):
    progress.note(is_up=True, table="/lake/killed")
    print("up", flush=True)
    time.sleep(3600)
"""


class Impatient(Admin):
    def command(self) -> list[str]:
        shortened = "from penstock import limits; limits.ADMIN_RUN_SILENT_S = 3.0; import sys; "
        started = "from penstock.nsqadmin.main import main; sys.exit(main())"
        return [sys.executable, "-c", shortened + started, *super().command()[3:]]


@pytest.fixture
def admin(installation: Installation, tmp_path: Path) -> Iterator[Admin]:
    asked = f"-nsqd-http-address=127.0.0.1:{installation.nsqd.http_port}"
    with Impatient(tmp_path / "admin", asked) as admin:
        yield admin
    installation.nsqd.post("/topic/delete?topic=_pipelines")


def test_a_run_that_is_killed_falls_silent(
    admin: Admin, page: Page, installation: Installation
) -> None:
    nsqd = f"http://127.0.0.1:{installation.nsqd.http_port}"
    command = [sys.executable, "-c", _RUN, nsqd]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            assert run.stdout.readline() == "up\n"
            page.goto(f"http://127.0.0.1:{admin.http_port}/pipelines")
            link = page.get_by_role("link", name="killed", exact=True)
            row = page.get_by_role("row").filter(has=link)
            expect(row).to_contain_text("running")
        finally:
            run.kill()
    expect(row).to_contain_text("fell silent")  # without reloading
    link.click()
    expect(page.locator(".badge", has_text="fell silent")).to_be_visible()
    page.goto(f"http://127.0.0.1:{admin.http_port}/")
    expect(page.get_by_role("link", name="pipeline killed fell silent")).to_be_visible()
    page.goto("about:blank")  # before its server goes
