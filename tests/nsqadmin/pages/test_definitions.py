"""Definitions out of an installation, and into it again after something was lost."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from ..conftest import Installation

TOPIC = "defined"


def test_export_and_import(page: Page, installation: Installation, tmp_path: Path) -> None:
    nsqd, admin = installation.nsqd, installation.admin
    nsqd.make(TOPIC, "ch")
    nsqd.post(f"/topic/config?topic={TOPIC}&max_depth=77")
    page.goto(admin.url(f"/topics/{TOPIC}"))
    expect(page.get_by_role("link", name="ch", exact=True)).to_be_visible()  # nsqadmin knows it
    document = admin.json("GET", "/definitions.json")
    found = [one for one in document["topics"] if one["name"] == TOPIC]
    assert [one["channels"] for one in found] == [[{"name": "ch"}]]
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    page.goto(admin.url("/lookup"))
    text = page.get_by_label("Definitions to put in")
    text.fill("nonsense")
    page.get_by_role("button", name="Put in").click()
    expect(page.get_by_text("these are no definitions")).to_be_visible()
    saved = tmp_path / "definitions.json"
    saved.write_text(" " * 1_000_000)
    page.get_by_label("Take them from a file").set_input_files(saved)
    expect(text).to_have_value("This is too long for a page: penstock definitions import FILE")
    saved.write_text(json.dumps({"version": 1, "topics": found}))
    page.get_by_label("Take them from a file").set_input_files(saved)
    expect(text).to_have_value(saved.read_text())
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_text(f"set topic {TOPIC} max_depth=77 on")).to_be_visible()
    page.get_by_role("button", name="Put in").click()
    page.get_by_label("Type definitions to confirm").fill("definitions")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("Done.")).to_be_visible()
    answer = json.loads(nsqd.http("GET", f"/topic/config?topic={TOPIC}")[1])
    assert (answer["max_depth"], answer["own"]) == (77, ["max_depth"])
    assert nsqd.channel_stats(TOPIC, "ch")["channel_name"] == "ch"
    nsqd.post(f"/topic/delete?topic={TOPIC}")
