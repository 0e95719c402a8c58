"""Everything in nsqadmin that changes something: found in its source, each with the button that
others are not shown, or the request that is refused."""

import ast
import json
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock.nsqadmin
from cases import each
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.gate import CSRF_HEADER
from penstock.nsqadmin.routes import ROUTES
from penstock.nsqadmin.store import Store

from .conftest import USERS, Installation
from .running import Admin, logged_in
from .sockets import drawn

SOURCE = Path(penstock.nsqadmin.__file__).parent
DOERS = ("change", "do", "perform", "entry", "done", "_change")
MAKERS = {"audit.Audit.perform", "audit.Audit.note", "pages.layout.change",
          "pages.layout.do", "routes.Call.perform",
          "pages.channel_messages._Messages._change"}  # fmt: skip
TOPIC = "guarded"
PAGE, CHANNEL, NODE = f"/topics/{TOPIC}", f"/topics/{TOPIC}/c", "/nodes/{node}"
VIEW, OPERATE, DESTROY = Role.VIEW, Role.OPERATE, Role.DESTROY


class Click(NamedTuple):
    """`label` "": the button comes when something is there; a test of the page looks for it."""

    page: str
    label: str
    role: Role


CLICKS = {
    "pages.resource.StateButtons._turn": Click(PAGE, "Pause", OPERATE),
    "pages.resource.StateButtons._empty": Click(PAGE, "Empty", DESTROY),
    "pages.resource.StateButtons._delete": Click(PAGE, "Delete", DESTROY),
    "pages.nodes._tombstone.go": Click(NODE, "Delete there", DESTROY),
    "pages.nodes._forget.go": Click(NODE, "", DESTROY),
    "pages.lookup._creation.create": Click("/lookup", "Make", OPERATE),
    "pages.lookup._idle.delete": Click("/lookup", "", DESTROY),
    "pages.lookup._Form._put": Click("/lookup", "Put in", DESTROY),
    "pages.message._publish": Click(f"/messages/{TOPIC}", "Publish one", OPERATE),
    "pages.channel_messages._Messages._finish": Click(CHANNEL, "Finish", DESTROY),
    "pages.channel_messages._Messages._requeue": Click(CHANNEL, "Requeue", OPERATE),
    "pages.channel_messages._Messages._redrive": Click(CHANNEL, "Redrive", OPERATE),
    "pages.channel_messages._Messages._redrive_all": Click(CHANNEL, "Redrive all", OPERATE),
    "pages.channel_messages._Replay._move": Click(CHANNEL, "Preview", OPERATE),
    "pages.settings._Panel._apply": Click(PAGE, "", OPERATE),
    "pages.people.Users._save": Click("/users", "Save", DESTROY),
    "pages.people.Users._remove": Click("/users", "Remove", DESTROY),
    "pages.people.Users._end": Click("/users", "", DESTROY),
    "pages.people.Tokens._make": Click("/tokens", "Make", DESTROY),
    "pages.people.Tokens._remove": Click("/tokens", "Remove", DESTROY),
    "pages.people._Password._save": Click("/account", "Change", VIEW),
    "pages.sql.Console._run": Click("/sql", "Run (Ctrl+Enter)", OPERATE),
}
# The same on another page.
ALSO = (
    Click(CHANNEL, "Pause", OPERATE),
    Click(CHANNEL, "Empty", DESTROY),
    Click(CHANNEL, "Delete", DESTROY),
)
# What is asked for over HTTP: the role, and a document that would change nothing if it were done.
BY_HAND: dict[str, tuple[str, str, Role, Any]] = {
    "routes.create": ("POST", "/api/topics", OPERATE, {"topic": "not a name"}),
    "routes.act": ("POST", f"/api/topics/{TOPIC}/c", DESTROY, {"action": "empty"}),
    "routes.delete": ("DELETE", "/api/topics/nowhere", DESTROY, None),
    "routes.tombstone": ("DELETE", "/api/nodes/127.0.0.1:1", DESTROY, {"topic": TOPIC}),
    "routes.configure": ("PUT", "/config/log_level", DESTROY, b"no level"),
}
MORE_BY_HAND = {
    "delete a channel": ("DELETE", f"/api/topics/{TOPIC}/nowhere", DESTROY, None),
    "pause": ("POST", f"/api/topics/{TOPIC}/c", OPERATE, {"action": "unpause"}),
    "pause a topic": ("POST", f"/api/topics/{TOPIC}", OPERATE, {"action": "unpause"}),
    "empty a topic": ("POST", f"/api/topics/{TOPIC}", DESTROY, {"action": "empty"}),
}
# Written down, and not asked for by somebody who is known yet.
LOG_INS = {"pages.login._add_provider.come_back", "pages.login.add.login"}


class _Finder(ast.NodeVisitor):
    """Functions that call one of DOERS on what does things, by their names."""

    def __init__(self, module: str) -> None:
        self._path = [module]
        self.found: set[str] = set()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._path.append(node.name)
        self.generic_visit(node)
        self._path.pop()

    def visit_Call(self, node: ast.Call) -> None:
        words = ast.unparse(node.func).split(".")
        owner = words[-2] if len(words) > 1 else ""
        owned = owner in ("layout", "audit", "self", "call") or "_change" in words
        if words[-1] in DOERS and owned:
            self.found.add(".".join(self._path))
        self.generic_visit(node)


@cache
def sites() -> frozenset[str]:
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        finder = _Finder(name)
        finder.visit(ast.parse(path.read_text()))
        found |= finder.found
    return frozenset(found - MAKERS)


def test_every_change_is_in_the_tables() -> None:
    """Whoever adds one says here who may."""
    known = CLICKS.keys() | BY_HAND.keys() | LOG_INS
    assert sorted(sites() - known) == []
    assert sorted(known - sites()) == []


def test_every_route_that_changes_needs_a_role() -> None:
    """Also one that would write nothing down."""
    changing = {one.answer.__name__: one.role for one in ROUTES if one.method != "GET"}
    assert changing == {"create": OPERATE, "act": OPERATE, "delete": DESTROY,
                        "tombstone": DESTROY, "configure": DESTROY}  # fmt: skip
    posts = {
        ast.unparse(node.args[0])
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("app.post", "app.put", "app.delete", "app.patch")
    }
    assert posts == {f"f'{{deps.base}}/{name}'" for name in ("login", "logout", "session")}


class World(NamedTuple):
    admin: Admin
    node: str
    headers: dict[Role, dict[str, str]]


@pytest.fixture(scope="module")
def world(installation: Installation, guarded: Admin) -> Iterator[World]:
    with (
        installation.topic(TOPIC, "c", bodies=[b"kept"]) as nsqd,
        closing(Store(guarded.data_path)) as store,
    ):
        headers = {role: logged_in(store, name) for name, role in USERS.items()}
        store.put_token("robot", VIEW)
        yield World(guarded, f"127.0.0.1:{nsqd.http_port}", headers)
        store.remove_token("robot")


@each("click", [click for click in (*CLICKS.values(), *ALSO) if click.label])
def test_a_button_is_shown_to_those_who_may(world: World, click: Click) -> None:
    """And is not in the page of others at all: there is nothing that an event could name."""
    path = click.page.format(node=world.node)
    for role, headers in world.headers.items():
        if path in ("/users", "/tokens", "/sql") and role < click.role:
            assert world.admin.request("GET", path, headers=headers)[0] == 403
            continue
        page = drawn(world.admin, path, headers)
        assert (page.button(click.label) is not None) is (role >= click.role), role


@pytest.mark.parametrize("name", [*BY_HAND, *MORE_BY_HAND])
def test_a_direct_request_needs_the_role(
    world: World, installation: Installation, name: str
) -> None:
    method, path, wanted, document = (BY_HAND | MORE_BY_HAND)[name]
    for role, headers in world.headers.items():
        if role >= wanted and document == {"action": "empty"}:
            continue  # it would be
        status, body, _ = world.admin.request(method, path, document, headers)
        assert (status == 403) is (role < wanted), (role, status, body)
        if status == 403:
            assert json.loads(body) == {"message": "FORBIDDEN"}
        if method == "GET":
            continue  # it changes nothing, and is a link
        without = {"Cookie": headers["Cookie"]}
        assert world.admin.request(method, path, document, without)[0] == 403
        for token in (headers[CSRF_HEADER][::-1], "", "\u00e9"):
            wrong = headers | {CSRF_HEADER: token}
            assert world.admin.request(method, path, document, wrong)[0] == 403, token
    assert installation.nsqd.channel_stats(TOPIC, "c")["depth"] == 1
