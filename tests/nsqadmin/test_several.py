"""Several installations in one nsqadmin, over real daemons: each request meets its own, and who may
do something in one may not do it in another for that."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from cases import each
from e2e.daemon import Daemon

from .conftest import Installation
from .running import Admin
from .sockets import Button, Drawn, drawn, settle, socket
from .test_official import Elsewhere

WAIT_S = 60.0
SRE = {"X-Forwarded-User": "sue", "X-Forwarded-Groups": "sre"}
DEV = {"X-Forwarded-User": "dan", "X-Forwarded-Groups": "dev"}
OPS = {"X-Forwarded-User": "olga", "X-Forwarded-Groups": "ops"}


class Several(NamedTuple):
    """The default one has a lookupd, `staging` an nsqd, `frozen` is the same to look at only."""

    default: Installation
    staging: Daemon
    admin: Admin
    hook: Elsewhere
    path: Path

    def topics(self, place: str) -> list[str]:
        return list(self.admin.json("GET", f"{place}/api/topics")["topics"])

    def audit(self) -> list[tuple[str, str, str]]:
        with sqlite3.connect(self.path / "admin.db") as db:
            rows = db.execute("SELECT installation, action, target FROM audit ORDER BY id")
            found = [(str(a), str(b), str(c)) for a, b, c in rows]
        db.close()
        return found


@pytest.fixture(scope="module")
def several(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Several]:
    path = tmp_path_factory.mktemp("several")
    hook = Elsewhere()
    with ExitStack() as stack:
        stack.callback(hook.close)
        staging = stack.enter_context(Daemon(path / "staging"))
        at = f"127.0.0.1:{staging.http_port}"
        frozen = path / "frozen.toml"
        frozen.write_text(f'nsqd_http_addresses = ["{at}"]\nread_only = true\n')
        admin = stack.enter_context(Admin(
            path / "admin",
            f"-lookupd-http-address=127.0.0.1:{installation.lookupd.http_port}",
            f"-installation=staging=nsqd:{at}",
            f"-installation=frozen={frozen}",
            "-installation=gone=lookupd:127.0.0.1:1",  # it starts all the same
            "-installation-name=prod",
            f"-notification-http-endpoint={hook.url}/hook",
        ))  # fmt: skip
        yield Several(installation, staging, admin, hook, path / "admin")


def _until(holds: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return found


def test_an_action_lands_where_it_was_meant(several: Several) -> None:
    admin = several.admin
    assert admin.json("POST", "/api/topics", {"topic": "of_prod"}) == {"message": ""}
    told = json.loads(several.hook.next()[2])
    assert list(told) == ["action", "topic", "timestamp", "remote_ip", "user_agent", "url", "via"]
    assert admin.json("POST", "/i/staging/api/topics", {"topic": "of_staging"}) == {"message": ""}
    told = json.loads(several.hook.next()[2])
    assert (told["action"], told["installation"]) == ("create_topic", "staging")
    assert told["url"].endswith("/i/staging/api/topics")
    assert "of_prod" in several.topics("")
    assert several.topics("/i/prod") == several.topics("")
    assert several.topics("/i/staging") == several.topics("/i/frozen") == ["of_staging"]
    assert [row for row in several.audit() if row[2].startswith("of_")] == [
        ("prod", "create_topic", "of_prod"), ("staging", "create_topic", "of_staging"),
    ]  # fmt: skip
    status, body, _ = admin.request("GET", "/i/gone/api/topics")
    assert (status, b"UPSTREAM_ERROR" in body) == (502, True)


def test_each_has_its_own_options_and_charts(several: Several) -> None:
    admin = several.admin
    at = f"127.0.0.1:{several.staging.http_port}"
    assert admin.json("GET", "/i/staging/config/nsqd_http_addresses") == [at]
    assert admin.json("GET", "/config/nsqd_http_addresses") == []
    assert admin.request("GET", "/config/installations")[0] == 400
    lookupds = json.dumps(["127.0.0.1:2"]).encode()
    put = admin.request("PUT", "/i/gone/config/nsqlookupd_http_addresses", lookupds)
    assert (put[0], json.loads(put[1])) == (200, ["127.0.0.1:2"])
    assert admin.json("GET", "/config/nsqlookupd_http_addresses") != ["127.0.0.1:2"]
    # The log is that of all.
    assert admin.request("PUT", "/i/staging/config/log_level", b"info")[0] == 400
    for place in ("", "installations/staging", "installations/frozen", "installations/gone"):
        assert (several.path / place / "history.db").stat().st_mode & 0o077 == 0


def test_one_that_may_not_be_changed_does_not_hold_back_the_others(several: Several) -> None:
    admin, document = several.admin, {"topic": "of_frozen"}
    assert admin.request("POST", "/i/frozen/api/topics", document)[0] == 403
    assert admin.request("PUT", "/i/frozen/config/nsqlookupd_http_addresses", b"[]")[0] == 403
    assert admin.json("POST", "/i/staging/api/topics", {"topic": "of_staging"}) == {"message": ""}
    several.hook.next()
    assert "of_frozen" not in several.topics("/i/staging")


@each(
    "path",
    [
        "/i/other", "/i/other/topics", "/i/staging%2ftopics", "/i/staging%2f..%2f", "/i/..",
        "/i/../topics", "/i/staging/i/frozen", "/i/staging/i/frozen/topics", "/i//topics", "/i/",
        "/i/%73taging/topics", "/i/STAGING/topics", "/i/staging/../frozen/topics",
        "/i/staging/login", "/i/staging/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        "/i/staging/%5fnicegui_ws/socket.io/", "/i/staging//topics", "/i/<script>alert(1)</script>",
    ],
)  # fmt: skip
def test_what_only_looks_like_an_address_is_none(several: Several, path: str) -> None:
    status, body, headers = several.admin.request("GET", quote(path, safe="/%?=&."))
    assert status == 404
    assert headers["x-frame-options"] == "DENY"
    assert b"of_staging" not in body
    assert b"<script>alert" not in body
    if path.startswith("/i/other"):
        for name in (b"prod", b"staging", b"frozen", b"gone"):
            assert b">%s</a>" % name in body  # where one may go on
    api = several.admin.request("GET", f"/i/other/api{path}")
    assert (api[0], json.loads(api[1])) == (404, {"message": "INSTALLATION_NOT_FOUND"})


def test_all_at_a_glance(several: Several) -> None:
    def told() -> list[dict[str, Any]]:
        return list(several.admin.json("GET", "/api/installations")["installations"])

    rows = _until(lambda: [one for one in told() if one["state"] != "not asked yet"][3:] and told())
    assert rows[0]["name"] == "gone"  # the worst first
    assert (rows[0]["state"], rows[0]["nodes"]) == ("unreachable", 0)
    assert "127.0.0.1" in rows[0]["why"]
    named = {one["name"]: one for one in rows}
    assert set(named) == {"prod", "staging", "frozen", "gone"}
    assert (named["prod"]["path"], named["staging"]["path"]) == ("/", "/i/staging")
    assert named["prod"]["default"]
    assert named["staging"]["nodes"] == named["staging"]["nodes_up"] == 1
    assert several.admin.json("GET", "/i/staging/api/installations")["message"] == ""


def test_a_bundle_is_of_one_installation(several: Several) -> None:
    """And says nothing of the others."""
    path = "/i/staging/api/diagnostics?seconds=0"
    _until(lambda: several.admin.json("GET", "/i/staging/api/nodes")["nodes"])
    status, body, _ = several.admin.request("GET", path)
    assert status == 200
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    members = json.loads(files["manifest.json"])["daemons"]
    assert [one["address"] for one in members] == [f"127.0.0.1:{several.staging.http_port}"]
    other = f":{several.default.lookupd.http_port}".encode()
    assert [name for name, data in files.items() if other in data] == []
    assert json.loads(files["nsqadmin/polling.json"])["installation"] == "staging"
    assert several.audit()[-1][:2] == ("staging", "gather_diagnostics")


# --- who may do what ---


@pytest.fixture(scope="module")
def ruled(several: Several, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """Below a base path. Everybody is known by a proxy; developers may do everything in `staging`
    and see nothing else."""
    path = tmp_path_factory.mktemp("ruled")
    at = f"127.0.0.1:{several.staging.http_port}"
    own = path / "own.toml"
    own.write_text(f'nsqd_http_addresses = ["{at}"]\ngroup_role = ["dev=destroy", "sre=view"]\n')
    with Admin(
        path / "admin", f"-nsqd-http-address=127.0.0.1:{several.default.nsqd.http_port}",
        f"-installation=staging={own}", "-base-path=/mq", "-login=required",
        "-trusted-proxy-cidr=127.0.0.1/32", "-group-role=sre=destroy", "-group-role=ops=operate",
    ) as admin:  # fmt: skip
        yield admin


@pytest.mark.parametrize(
    ("who", "default", "staging"), [(SRE, 3, 1), (OPS, 2, 0), (DEV, 0, 3), ({}, 0, 0)]
)
def test_roles_are_those_of_the_installation(
    ruled: Admin, who: dict[str, str], default: int, staging: int
) -> None:
    for home, role in (("/mq", default), ("/mq/i/staging", staging)):
        refused = 403 if who else 401
        for needed, method, path, document in [
            (1, "GET", "/api/topics", None),
            (1, "GET", "/api/nodes", None),
            (1, "GET", "/config/log_level", None),
            (1, "GET", "/definitions.json", None),
            (2, "POST", "/api/topics", {"topic": "ruled"}),
            (3, "DELETE", "/api/topics/ruled", None),
        ]:
            expected = 200 if role >= needed else refused if role == 0 else 403
            status, body, _ = ruled.request(method, home + path, document, headers=dict(who))
            assert status == expected, (home, path, body)
        for needed, path in [(1, "/topics"), (1, ""), (2, "/audit"), (3, "/users"), (3, "/tokens")]:
            status, _, headers = ruled.request("GET", home + path, headers=dict(who))
            expected = 200 if role >= needed else 403 if who else 303
            if path in ("/users", "/tokens"):  # nobody has that role everywhere
                expected = 403 if who else 303
            assert status == expected, (home, path)
            if status == 303:
                place = home.removeprefix("/mq") + path
                assert headers["location"].rstrip("/").endswith(f"next={quote(place)}")


def test_what_one_may_not_see_is_not_named(ruled: Admin) -> None:
    for who, seen in ((SRE, {"default", "staging"}), (OPS, {"default"}), (DEV, {"staging"})):
        status, body, _ = ruled.request("GET", "/mq/api/installations", headers=who)
        assert status == 200
        assert {one["name"] for one in json.loads(body)["installations"]} == seen
    assert ruled.request("GET", "/mq/api/installations")[0] == 401
    status, body, _ = ruled.request("GET", "/mq/", headers=DEV)
    assert (status, ruled.request("GET", "/mq", headers=DEV)[0]) == (301, 403)
    body = ruled.request("GET", "/mq", headers=DEV)[1]
    assert b'href="/mq/i/staging/"' in body
    assert b"default" not in body


def test_a_button_is_pressed_by_whom_its_installation_lets(ruled: Admin) -> None:
    """The page of an installation takes events only from whom it was drawn for, as they are there;
    who may do everything elsewhere is nobody here."""
    assert ruled.request("POST", "/mq/i/staging/api/topics", {"topic": "pressed"}, DEV)[0] == 200

    def pressable() -> tuple[Drawn, Button] | None:
        """Once nsqadmin has polled the nsqd that has the topic."""
        page = drawn(ruled, "/mq/i/staging/topics/pressed", DEV)
        button = page.button("Pause")
        assert button is not None
        return None if button.hidden else (page, button)

    page, button = _until(pressable)
    assert drawn(ruled, "/mq/i/staging/topics/pressed", SRE).button("Pause") is None

    async def press() -> None:
        async with socket(ruled, None, SRE, base="/mq") as client:
            await client.emit("event", page.press(button))
            assert await client.call("handshake", {"client_id": page.id}, timeout=60) is False
        assert not _paused()
        async with socket(ruled, page, DEV, base="/mq") as client:
            await client.emit("event", page.press(button))
            await settle(client, page)
            await asyncio.to_thread(_until, _paused)

    def _paused() -> bool:
        path = "/mq/i/staging/api/topics/pressed"
        return bool(json.loads(ruled.request("GET", path, headers=DEV)[1])["paused"])

    asyncio.run(press())


def test_one_dies_and_the_others_go_on(several: Several, tmp_path: Path) -> None:
    """Last here: it takes staging away."""
    several.staging.kill()

    def states() -> dict[str, str]:
        rows = several.admin.json("GET", "/api/installations")["installations"]
        return {one["name"]: one["state"] for one in rows}

    _until(lambda: states()["staging"] == states()["frozen"] == "unreachable")
    assert states()["prod"] != "unreachable"
    assert several.admin.request("GET", "/i/staging")[0] == 200
    assert "of_prod" in several.topics("")


def test_charts_are_kept_by_installation(tmp_path: Path) -> None:
    def series(place: str) -> set[str]:
        with sqlite3.connect(tmp_path / "admin" / place / "history.db") as db:
            found = {str(row[0]) for row in db.execute("SELECT name FROM series")}
        db.close()
        return found

    with Daemon(tmp_path / "a") as one, Daemon(tmp_path / "b") as other:
        one.post("/topic/create?topic=of_one")
        other.post("/topic/create?topic=of_other")
        with Admin(
            tmp_path / "admin", f"-installation=one=nsqd:127.0.0.1:{one.http_port}",
            f"-installation=other=nsqd:127.0.0.1:{other.http_port}",
        ) as admin:  # fmt: skip
            # Without plain addresses the first one is at the official ones.
            assert admin.json("GET", "/api/topics")["topics"] == ["of_one"]
            path, up = "/api/installations", {("one", 1), ("other", 1)}
            _until(lambda: up == {(row["name"], row["nodes_up"])
                                  for row in admin.json("GET", path)["installations"]})  # fmt: skip
            assert admin.stop() == 0
        assert {"of_one", "of_other"} & series("") == {"of_one"}
        assert {"of_one", "of_other"} & series("installations/other") == {"of_other"}
