"""`/api/diagnostics`: who may, what is in it, what never is, and how many are kept."""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.lookupd import eventually
from penstock import limits
from penstock.nsqadmin.bundle.files import read
from penstock.nsqadmin.bundle.judge import judge
from penstock.nsqadmin.diagnostics import Diagnostics, Kept
from penstock.nsqadmin.store import Store

from .conftest import Installation
from .running import Admin

SECRET = "geheimes-Wort-17"
PATH = "/api/diagnostics?seconds=0"


@pytest.fixture(scope="module")
def guarded(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    """Behind a proxy; with secrets wherever a flag takes some."""
    path = tmp_path_factory.mktemp("diagnostics")
    (path / f"file-{SECRET}").write_text(SECRET)
    flags = (
        installation.of_lookupd,
        f"-notification-http-endpoint=http://u:{SECRET}@127.0.0.1:9/{SECRET}?a={SECRET}",
        f"-graphite-url=http://127.0.0.1:9/{SECRET}",
        "-acl-http-header=X-Who", "-group-role=ops=operate", "-group-role=*=view",
        "-acl-groups-header=X-Groups", "-trusted-proxy-cidr=127.0.0.1/32", "-login=required",
    )  # fmt: skip
    with Admin(path / "admin", *flags) as admin:
        asked = ("GET", "/api/nodes", None, OPERATOR)
        eventually(lambda: json.loads(admin.request(*asked)[1]).get("nodes"))  # it has looked
        yield admin


OPERATOR = {"X-Who": "olga", "X-Groups": "ops"}
VIEWER = {"X-Who": "vera", "X-Groups": "guests"}


def members(body: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bundle_of_the_installation(
    guarded: Admin, installation: Installation, tmp_path: Path
) -> None:
    status, body, headers = guarded.request("GET", PATH, headers=OPERATOR)
    assert (status, headers["content-type"]) == (200, "application/zip")
    assert headers["content-disposition"].startswith('attachment; filename="penstock-bundle-')
    assert int(headers["content-length"]) == len(body)
    files = members(body)
    manifest = json.loads(files["manifest.json"])
    assert manifest["who"] == "olga"
    assert {one["kind"] for one in manifest["daemons"]} == {"nsqd", "nsqlookupd"}
    assert json.loads(files["nsqd/1/info.json"])["tcp_port"] == installation.nsqd.tcp_port
    polling = json.loads(files["nsqadmin/polling.json"])
    assert [one["error"] for one in polling["nodes"]] == [""]
    assert json.loads(files["nsqadmin/stores.json"])["bytes"]["admin.db"] > 0
    assert "findings" in json.loads(files["nsqadmin/attention.json"])
    path = tmp_path / "b.zip"
    path.write_bytes(body)
    judge(read(str(path)))
    with closing(Store(guarded.data_path)) as store:
        entry = store.audit("gather_diagnostics")[0]
    assert (entry.who, entry.result, entry.detail) == ("olga", "ok", "0 s")


def test_no_secret_of_nsqadmin_is_in_it(guarded: Admin) -> None:
    body = guarded.request("GET", PATH, headers=OPERATOR)[1]
    files = members(body) | {"the zip": body}
    assert [name for name, data in files.items() if SECRET.encode() in data] == []
    config = json.loads(files["nsqadmin/config.json"])
    assert config["notification_http_endpoint"] == "http://127.0.0.1:9/***"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (VIEWER, 403),
        (OPERATOR | {"Sec-Fetch-Site": "cross-site"}, 403),
        (OPERATOR | {"Origin": "http://elsewhere.example"}, 403),
    ],
)
def test_roles_that_may_not_gather(guarded: Admin, headers: dict[str, str], status: int) -> None:
    assert guarded.request("GET", PATH, headers=headers)[0] == status
    assert guarded.request("GET", "/api/diagnostics/x.zip", headers=headers)[0] == status


def test_invalid_queries(guarded: Admin) -> None:
    for seconds in ("61", "00000000061", "-1", "x", "1" * 5000):
        path = f"/api/diagnostics?seconds={seconds}"
        status, body, _ = guarded.request("GET", path, headers=OPERATOR)
        assert (status, json.loads(body)["message"]) == (400, "INVALID_ARG_SECONDS")
    assert guarded.request("GET", "/api/diagnostics/none.zip", headers=OPERATOR)[0] == 404


def test_one_at_a_time(guarded: Admin) -> None:
    """Of two that come together one is told to wait; it starts nothing."""
    codes: list[int] = []

    def ask(start: threading.Barrier) -> None:
        start.wait(60)
        codes.append(guarded.request("GET", "/api/diagnostics?seconds=1", headers=OPERATOR)[0])

    for _ in range(20):  # a machine that is loaded may take one after the other
        codes.clear()
        start = threading.Barrier(2)
        threads = [threading.Thread(target=ask, args=(start,)) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if 409 in codes:
            break
    assert sorted(codes) == [200, 409]


def test_kept_files_are_few() -> None:
    """Made up here: what counts is what is forgotten, and that its file is closed."""
    now_s = [1000.0]
    store = Diagnostics(lambda: now_s[0])

    def put(name: str) -> Kept:
        kept = Kept(name, name, io.BytesIO(b"x"), 1, now_s[0], "ann", [], [])
        store.keep(kept)
        return kept

    made = [put(str(number)) for number in range(limits.BUNDLE_KEPT + 2)]
    assert [one.id for one in store.kept] == [one.id for one in made[2:]]
    assert [one.file.closed for one in made] == [True, True, *[False] * limits.BUNDLE_KEPT]
    now_s[0] += limits.BUNDLE_KEPT_S + 1
    assert store.kept == []
    assert store.find("5") is None
    assert all(one.file.closed for one in made)
