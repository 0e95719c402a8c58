"""Every page for those who use a screen reader, the keyboard alone, dark or light, or a phone."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from penstock import limits
from penstock.nsqadmin.pages import bar

from ..conftest import HOUR_MS, Installation

TOPIC = "reachable".ljust(limits.NAME_BYTES_MAX, "w")  # no place to break it
IDLE = "i" * limits.NAME_BYTES_MAX
PAPER = {"light": "rgb(245, 247, 249)", "dark": "rgb(16, 24, 31)"}
PHONE: Any = {"width": 390, "height": 844}
TABS_MAX = 100
IMPACTS = ("serious", "critical")
_STILL = "() => document.getAnimations().every(one => one.playState !== 'running')"
_FOCUS = "() => (document.activeElement.innerText || document.activeElement.ariaLabel || '').trim()"


@pytest.fixture(scope="module", autouse=True)
def topic(installation: Installation) -> Iterator[None]:
    bodies = [b'{"number": %d}' % number for number in range(3)]
    installation.lookupd.post(f"/topic/create?topic={IDLE}")
    with installation.topic(TOPIC, TOPIC, bodies=bodies) as nsqd, nsqd.client() as client:
        client.identify(client_id="me", hostname="till-7", heartbeat_interval=HOUR_MS)
        client.sub(TOPIC, TOPIC)
        client.rdy(1)
        assert client.message() is not None
        nsqd.post(f"/channel/pause?topic={TOPIC}&channel={TOPIC}")
        yield
    installation.lookupd.post(f"/topic/delete?topic={IDLE}")


def paths(installation: Installation) -> list[str]:
    """Every place of the bar, and the pages below."""
    node = f"127.0.0.1:{installation.nsqd.http_port}"
    below = [f"/topics/{TOPIC}", f"/topics/{TOPIC}/{TOPIC}", f"/messages/{TOPIC}?at=oldest&open=0",
             f"/nodes/{node}", "/trace?id=1", "/account", "/login"]  # fmt: skip
    return [path for path, _, _ in bar.SECTIONS] + below


def go(page: Page, installation: Installation, path: str) -> None:
    """Until it is drawn and follows the installation."""
    page.goto(installation.admin.url(path))
    expect(page.locator("h1").first).to_be_visible()
    if path != "/login":
        page.wait_for_function("window.did_handshake")


def faults(page: Page, part: str = "body") -> list[str]:
    """Light, and then dark, in which nothing can differ but the contrast."""
    return _faults(page, part, "light", {}) + _faults(
        page, part, "dark", {"runOnly": ["color-contrast"]}
    )


def _faults(
    page: Page, part: str, scheme: Literal["light", "dark"], rules: dict[str, list[str]]
) -> list[str]:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("body")).to_have_css("background-color", PAPER[scheme])
    options = {"resultTypes": ["violations"], **rules}
    # Quasar's bar that passes by while something loads has no name, and says nothing.
    where = {"include": [[part]], "exclude": [[".q-loading-bar"]]}
    found = Axe().run(page, context=where, options=options).response["violations"]
    return [
        f"{scheme}: {one['impact']} {one['id']}: {node['html'][:200]} {node['any'][:1]}"
        for one in found
        if one["impact"] in IMPACTS
        for node in one["nodes"][:3]
    ]


@pytest.mark.timeout(240)
def test_a_screen_reader_and_weak_eyes_find_everything(
    page: Page, installation: Installation
) -> None:
    text = {}
    for path in paths(installation):
        go(page, installation, path)
        text[path] = faults(page)
    for path, name in (("/sql", "Examples"), (f"/messages/{TOPIC}", "Choose where to begin")):
        go(page, installation, path)
        page.get_by_role("button", name=name).click()
        page.wait_for_function(_STILL)
        text[name] = faults(page, ".q-menu")
    go(page, installation, f"/topics/{TOPIC}")
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("link", name="Lookup")).to_be_visible()
    text["the menu"] = faults(page, ".bar")
    page.get_by_role("button", name="anonymous").click()
    expect(page.get_by_label("Dark or light")).to_be_visible()
    text["the menu of the user"] = faults(page, ".bar")
    page.keyboard.press("Control+k")
    page.keyboard.type(TOPIC)
    expect(page.get_by_role("option").first).to_contain_text(TOPIC)
    text["quick open"] = faults(page, ".finder")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_label(f"Type {TOPIC} to confirm")).to_be_visible()
    page.wait_for_function(_STILL)
    # axe takes the shade of the page behind a dialog for the dialog's own colour.
    inside = faults(page, "[role=dialog]")
    text["the dialog"] = [one for one in inside if "color-contrast" not in one]
    assert {path: found for path, found in text.items() if found} == {}


@pytest.mark.timeout(240)
def test_a_phone_scrolls_down_and_not_sideways(page: Page, installation: Installation) -> None:
    page.set_viewport_size(PHONE)
    widths = {}
    for path in paths(installation):
        go(page, installation, path)
        if path == "/lookup":
            expect(page.get_by_text(IDLE)).to_be_visible()
        if path == "/":
            expect(page.get_by_text(f"Channel {TOPIC}/{TOPIC} is paused")).to_be_visible()
        widths[path] = page.evaluate("document.documentElement.scrollWidth")
    assert {path: width for path, width in widths.items() if width > PHONE["width"]} == {}


def tab_to(page: Page, words: str) -> None:
    """Press Tab until it is there."""
    seen = []
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(_FOCUS))
        if seen[-1].casefold() == words.casefold():
            return
    raise AssertionError(f"Tab never came to {words}: {seen}")


def test_the_keyboard_alone_is_enough(page: Page, installation: Installation) -> None:
    """Find a topic, open it, pause it, unpause it, and delete it by typing its name."""
    nsqd, name = installation.nsqd, "by_keyboard"
    nsqd.post(f"/topic/create?topic={name}")
    installation.wait_for_topic(name)
    go(page, installation, "/")
    page.keyboard.press("Tab")
    assert page.evaluate(_FOCUS) == "Skip to the content"
    tab_to(page, "Topics")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Topics")
    page.wait_for_function("window.did_handshake")
    expect(page.get_by_role("gridcell", name=name)).to_be_visible()
    tab_to(page, "Search topics")
    page.keyboard.type(name)
    expect(page.get_by_role("gridcell", name=TOPIC)).to_have_count(0)
    tab_to(page, name)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(name)
    page.wait_for_function("window.did_handshake")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.locator(".badge", has_text="paused")).to_be_visible()
    expect(page.get_by_role("button", name="Unpause")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.locator(".badge", has_text="paused")).to_be_hidden()
    tab_to(page, "Delete")
    page.keyboard.press("Enter")
    expect(page.get_by_label(f"Type {name} to confirm")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label(f"Type {name} to confirm")).to_have_count(0)
    tab_to(page, "Delete")
    page.keyboard.press("Enter")
    expect(page.get_by_label(f"Type {name} to confirm")).to_be_focused()
    page.keyboard.type(name)
    tab_to(page, "Go on")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Topics")
    assert name not in installation.admin.json("GET", "/api/topics")["topics"]
