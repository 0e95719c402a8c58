"""The websocket of the pages, under attack: opened from another site, by somebody else, after the
log-in has ended, and with events that no page of ours sends.

Each test first shows that the same event does something when its rightful owner sends it."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from socketio.exceptions import ConnectionError as SocketRefused

from cases import each
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.store import BEGUN, Store, hash_password

from .conftest import Installation
from .running import PASSWORD, Admin, logged_in
from .sockets import Button, Drawn, drawn, settle, socket

TOPIC = "besieged"
WAIT_S = 60


class World:
    """An nsqadmin with a user of each role, all logged in."""

    def __init__(self, installation: Installation, admin: Admin) -> None:
        self.nsqd = installation.nsqd
        self.admin = admin
        self.store = Store(admin.data_path)

    def page(self, name: str) -> tuple[Drawn, dict[str, str]]:
        headers = logged_in(self.store, name)
        return drawn(self.admin, f"/topics/{TOPIC}", headers), headers

    def done(self) -> list[str]:
        """Every action that was done, the first one first."""
        found = [one for one in self.store.audit(count=1000)
                 if one.result not in ("", BEGUN) and not one.result.startswith("failed")
                 and one.action != "logout"]  # fmt: skip
        return [one.action for one in found][::-1]

    async def press(self, name: str, label: str) -> None:
        """What the rightful owner does; it is done, and written down, when this returns."""
        before = len(self.done())
        page, headers, button = await self._drawn_with(name, label)
        deadline_s = time.monotonic() + WAIT_S
        async with socket(self.admin, page, headers) as own:
            await settle(own, page)
            await own.emit("event", page.press(button))
            while f"{label.lower()}_topic" not in self.done()[before:]:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.02)
        await self._drawn_with(name, "Unpause" if label == "Pause" else "Pause")

    async def _drawn_with(self, name: str, label: str) -> tuple[Drawn, dict[str, str], Button]:
        """The page when it shows this button: pages learn of a change later."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            page, headers = self.page(name)
            if (button := page.button(label)) is not None and not button.hidden:
                return page, headers, button
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)

    async def prove_it_did_nothing(self, before: list[str]) -> None:
        """An action of somebody who may, after the attack's, which would be done by then."""
        await self.press("otto", "Pause")
        await self.press("otto", "Unpause")
        assert self.done()[len(before) :] == ["pause_topic", "unpause_topic"]
        assert self.nsqd.topic_stats(TOPIC)["paused"] is False


@pytest.fixture(scope="module")
def world(installation: Installation, guarded: Admin) -> Iterator[World]:
    with installation.topic(TOPIC):
        found = World(installation, guarded)
        yield found
        assert "Traceback" not in guarded.stderr()
        found.store.close()


def pause_of(page: Drawn) -> Button:
    button = page.button("Pause")
    assert button is not None
    return button


@each(
    "forged",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_site_opens_no_socket(world: World, forged: dict[str, str]) -> None:
    """Even where the browser sends the cookie along and the page's id is known."""
    page, headers = world.page("dora")
    before = world.done()
    with pytest.raises(SocketRefused):
        async with socket(world.admin, page, headers | forged):
            pass
    await world.prove_it_did_nothing(before)
    polling = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert world.admin.request("GET", polling, headers=headers | forged)[0] == 403
    assert world.admin.request("POST", polling, b"40", headers | forged)[0] == 403
    status, _, answered = world.admin.request("GET", polling, headers=headers)
    assert status == 200
    assert "access-control-allow-origin" not in answered


@pytest.mark.parametrize("attacker", ["vera", "otto", ""])
async def test_pages_of_other_users_are_out_of_reach(world: World, attacker: str) -> None:
    """Its id is known: leaked by a log, or a screen that was shared."""
    page, _ = world.page("dora")
    event = page.press(pause_of(page))
    headers = logged_in(world.store, attacker) if attacker else {}
    before = world.done()
    with pytest.raises(SocketRefused):
        async with socket(world.admin, page, headers):
            pass
    if attacker:
        own = drawn(world.admin, f"/topics/{TOPIC}", headers)
        async with socket(world.admin, own, headers) as theirs:
            await theirs.emit("event", event)
            await theirs.emit("javascript_response", {"client_id": page.id, "request_id": "1"})
            await settle(theirs, page)
    await world.prove_it_did_nothing(before)


async def test_a_viewer_has_no_handle_to_pull(world: World) -> None:
    """No button is drawn; and what was drawn for others is not found under the viewer's page."""
    page, headers = world.page("vera")
    assert page.button("Pause") is None
    of_others, _ = world.page("dora")
    handle = pause_of(of_others)
    before = world.done()
    async with socket(world.admin, page, headers) as own:
        for element in range(1, 200):
            await own.emit("event", page.press(Button(element, handle.listener, False)))
        await settle(own, page)
    await world.prove_it_did_nothing(before)


@pytest.mark.parametrize("end", ["logout", "role", "removed"])
def test_a_page_ends_with_its_session(world: World, end: str) -> None:
    page, headers = world.page("dora")
    event = page.press(pause_of(page))

    def finish() -> None:
        if end == "logout":
            assert world.admin.request("POST", "/logout", b"", headers)[0] == 303
        elif end == "role":
            world.store.put_user("dora", hash_password(PASSWORD), Role.VIEW)
        else:
            world.store.remove_user("dora")

    async def attack() -> None:
        before = world.done()
        async with socket(world.admin, page, headers) as own:
            gone = asyncio.Event()
            own.on("disconnect", lambda *_: gone.set())
            finish()
            await own.emit("event", event)
            await asyncio.wait_for(gone.wait(), WAIT_S)  # nothing is shown to it any more either
        with pytest.raises(SocketRefused):
            async with socket(world.admin, page, headers):
                pass
        await world.prove_it_did_nothing(before)

    try:
        asyncio.run(attack())
    finally:
        world.store.put_user("dora", hash_password(PASSWORD), Role.DESTROY)


async def test_invalid_messages_are_ignored_and_not_logged(world: World) -> None:
    page, headers = world.page("dora")
    forged = "2026-11-21 nsqadmin: dora logged in\nfrom nowhere"
    async with socket(world.admin, page, headers) as own:
        for name in ("event", "handshake", "javascript_response", "ack", "nothing"):
            for text in (None, 1, "x", [], {}, {"client_id": []}, {"client_id": page.id}):
                await own.emit(name, text)
        for level in ("error", "none"):
            text = {"client_id": page.id, "level": level, "message": forged}
            await own.emit("log", text)
        wrong = page.press(pause_of(page)) | {"args": "no list"}
        await own.emit("event", wrong | {"id": "27"})
        await own.emit("event", page.press(Button(pause_of(page).element, "unknown", False)))
        await settle(own, page)
    await world.press("dora", "Pause")
    await world.press("dora", "Unpause")
    assert "Traceback" not in world.admin.stderr()
    assert "from nowhere" not in world.admin.stderr()
