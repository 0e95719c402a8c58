"""Every page in a real browser, against real daemons."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from ..conftest import HOUR_MS, Installation

TOPIC = "orders"


@pytest.fixture(scope="module", autouse=True)
def orders(installation: Installation) -> Iterator[None]:
    """A topic with a channel, a message, and somebody who listens."""
    with installation.topic(TOPIC, "billing", bodies=[b"hello"]) as nsqd, nsqd.client() as client:
        client.identify(client_id="me", hostname="till-7", user_agent="a test/1.0",
                        heartbeat_interval=HOUR_MS)  # fmt: skip
        client.sub(TOPIC, "billing")
        yield


def test_the_menus_by_keyboard_and_on_a_phone(page: Page, installation: Installation) -> None:
    page.goto(installation.admin.url("/"))
    more, lookup = page.get_by_role("button", name="More"), page.get_by_role("link", name="Lookup")
    more.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(lookup).to_be_visible()
    lookup.focus()
    page.keyboard.press("Escape")
    expect(more).to_be_focused()
    expect(lookup).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.get_by_role("link", name="Topics")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    lookup.click()
    expect(page.locator("h1").first).to_have_text("Lookup")


def test_quick_open(page: Page, installation: Installation) -> None:
    page.goto(installation.admin.url("/"))
    page.wait_for_function("window.did_handshake")
    expect(page.get_by_role("link", name=TOPIC, exact=True).first).to_be_visible()  # is known
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Topic, channel")
    expect(box).to_be_focused()
    expect(page.get_by_role("option").filter(has_text="Lookup")).to_be_visible()
    page.keyboard.type("ILLIN")
    expect(page.get_by_role("option")).to_have_text([f"{TOPIC}/billingchannel"])
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("billing")
    page.wait_for_function("window.did_handshake")
    page.keyboard.press("/")
    page.keyboard.type("order")
    expect(page.get_by_role("option").first).to_have_text(f"{TOPIC}topic")
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option").nth(1)).to_have_attribute("aria-selected", "true")
    box.fill("no such thing")
    expect(page.get_by_text("Nothing has this in its name.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()


def test_making_and_deleting_a_topic(page: Page, installation: Installation) -> None:
    page.goto(installation.admin.url("/lookup"))
    page.get_by_label("Topic", exact=True).fill("bad name")
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_text("1 to 64 of")).to_be_visible()
    page.get_by_label("Topic", exact=True).fill("idle_one")
    page.get_by_label("Channel (optional)").fill("waiting")
    page.get_by_label("Partitions (optional)").fill("256")
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_text("a whole number, 1 to 255")).to_be_visible()
    page.get_by_label("Partitions (optional)").fill("")
    page.get_by_role("button", name="Make").click()
    row = page.locator(".heading", has_text="idle_one")
    expect(row).to_contain_text("waiting")
    row.get_by_role("button", name="Delete").click()
    page.get_by_label("Type idle_one to confirm").fill("idle_one")
    page.get_by_role("button", name="Go on").click()
    expect(row).to_have_count(0)


def test_topics_are_narrowed_by_state_and_internal_ones_hidden(
    page: Page, installation: Installation
) -> None:
    nsqd = installation.nsqd
    for name in ("_pipelines", "halted"):
        nsqd.post(f"/topic/create?topic={name}")
    nsqd.post("/topic/pause?topic=halted")
    installation.wait_for_topic("halted")
    page.goto(installation.admin.url("/topics"))
    halted = page.get_by_role("link", name="halted", exact=True)
    own = page.get_by_role("link", name="_pipelines", exact=True)
    orders = page.get_by_role("link", name=TOPIC, exact=True)
    expect(halted).to_be_visible()
    expect(page.get_by_role("row").filter(has=halted)).to_contain_text("paused")
    expect(own).to_have_count(0)
    page.get_by_role("switch", name="Internal topics").click()
    expect(own).to_be_visible()
    page.wait_for_function("document.cookie.includes('penstock_internal=1')")
    page.goto(installation.admin.url("/topics?state=paused"))
    expect(halted).to_be_visible()
    expect(orders).to_have_count(0)
    nsqd.post("/topic/delete?topic=halted")


def test_without_a_connection_buttons_are_off_and_say_so(
    page: Page, installation: Installation
) -> None:
    page.goto(installation.admin.url(f"/topics/{TOPIC}"))
    pause, text = page.get_by_role("button", name="Pause", exact=True), page.get_by_role("alert")
    expect(pause).to_be_enabled()
    page.evaluate("window.socket.io.reconnectionDelay(5000).reconnectionDelayMax(5000)")
    page.evaluate("window.socket.io.engine.close()")
    expect(text.filter(has_text="buttons are off")).to_be_visible()
    expect(pause).to_be_disabled()
    expect(pause).to_be_enabled()  # it connects again by itself
    expect(text.filter(has_text="buttons are off")).to_be_hidden()
    with page.expect_navigation():  # of a page that is not known any more, as after a restart
        page.evaluate("window.socket.io.opts.query.client_id = 'x'; socket.io.engine.close()")
    expect(pause).to_be_enabled()
    # The connection is dead, and the browser does not know it yet.
    page.evaluate("window.socket.io.engine.transport.ws.send = () => {}")
    pause.click()
    expect(text.filter(has_text="was not answered: see whether it was done")).to_be_visible()
