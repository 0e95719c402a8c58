"""Every official action by clicks: what the receiver of notifications is told, and what is done."""

import json
import socket
from pathlib import Path

from playwright.sync_api import Page, expect

from ..conftest import Installation
from ..elsewhere import Elsewhere
from ..running import Admin


def press(page: Page, name: str, typed: str = "") -> None:
    page.get_by_role("button", name=name, exact=True).dblclick()
    if typed:
        page.get_by_label(f"Type {typed} to confirm").fill(typed)
        page.get_by_role("button", name="Go on").dblclick()


def is_told(hook: Elsewhere, **expected: str) -> None:
    """The next document says this, beside what is different each time."""
    method, at, body = hook.next()
    notice = json.loads(body)
    assert (method, at) == ("POST", "/hook")
    assert notice.pop("timestamp") > 1_700_000_000
    assert notice.pop("remote_ip").startswith("127.0.0.1:")
    assert "Chrome" in notice.pop("user_agent")
    assert notice.pop("via") == socket.gethostname()
    assert notice == expected


def test_each_action_is_reported_with_its_page(
    page: Page, installation: Installation, tmp_path: Path
) -> None:
    nsqd = installation.nsqd
    for topic in ("clicked", "left"):
        nsqd.make(topic, "mail")
        installation.wait_for_topic(topic)
    node = f"127.0.0.1:{nsqd.http_port}"
    with Elsewhere() as hook:
        flags = (installation.of_lookupd, f"-notification-http-endpoint={hook.url}/hook")
        with Admin(tmp_path / "admin", *flags) as admin:
            for part, kind in (({"channel": "mail"}, "channel"), ({}, "topic")):
                url = admin.url("/".join(["/topics/clicked", *part.values()]))
                page.goto(url)
                for button in ("Pause", "Unpause", "Empty", "Delete"):
                    is_dangerous = button in ("Empty", "Delete")
                    press(page, button, url.rpartition("/")[2] if is_dangerous else "")
                    action = f"{button.lower()}_{kind}"
                    is_told(hook, action=action, topic="clicked", url=url, **part)
                expect(page).not_to_have_url(url)
            page.goto(url := admin.url("/lookup"))
            page.get_by_label("Topic", exact=True).fill("fresh")
            page.get_by_label("Channel (optional)").fill("c")
            press(page, "Make")
            is_told(hook, action="create_topic", topic="fresh", url=url)
            is_told(hook, action="create_channel", topic="fresh", channel="c", url=url)
            page.goto(url := admin.url(f"/nodes/{node}"))
            page.get_by_label("Topic", exact=True).fill("left")
            press(page, "Delete there", "left")
            is_told(hook, action="tombstone_topic_producer", topic="left", node=node, url=url)
            page.goto("about:blank")  # before its server goes
        assert hook.asked.empty()  # nothing is told twice
    assert not {"clicked", "left"} & {row["topic_name"] for row in nsqd.stats()["topics"]}
    installation.lookupd.post("/topic/delete?topic=fresh")
