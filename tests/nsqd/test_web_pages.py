"""What a web page may make a browser send to nsqd and nsqlookupd, and HTTP changes by secret."""

from pathlib import Path

import pytest

from e2e.lookupd import Lookupd

from .world import Running

SECRET = "a-secret-of-the-tests"
FOREIGN: list[dict[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "evil.example"},
    {"Host": "evil.example:4151", "Origin": "http://evil.example:4151"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_change_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    with Running(tmp_path / "data") as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"kept").status == 200
        for target in (
            "/topic/delete?topic=t", "/topic/empty?topic=t", "/topic/create?topic=u",
            "/pub?topic=t", "/drain", "/nothing",
        ):  # fmt: skip
            answer = nsqd.request("POST", target, b"x", headers)
            assert (answer.status, b"_DENIED" in answer.body) == (403, True), target
        answer = nsqd.request("PUT", "/config/log_level", b"debug", headers)
        assert answer.status == 403
        topics = nsqd.stats()["topics"]
        assert [(row["topic_name"], row["message_count"]) for row in topics] == [("t", 1)]
        assert nsqd.request("POST", "/pub?topic=t", b"x").status == 200  # it does not drain


def test_changes_by_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    with Running(tmp_path / "data", f"--http-secret-file={tmp_path / 'secret'}") as nsqd:
        answer = nsqd.request("POST", "/pub?topic=t", b"x")
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b"SECRET_DENIED" in answer.body
        wrong = {"Authorization": "Bearer another-secret-than-it"}
        assert nsqd.request("POST", "/pub?topic=t", b"x", wrong).status == 401
        assert nsqd.request("GET", "/stats").status == 200
        right = {"Authorization": f"Bearer {SECRET}"}
        assert nsqd.request("POST", "/pub?topic=t", b"x", right).status == 200
        assert nsqd.request("POST", "/drain", b"", right).status == 200
        shown = nsqd.request("GET", "/config/http_secret_file").body
    assert SECRET.encode() not in shown
    assert "401 POST /pub" in caplog.text
    assert SECRET not in caplog.text
    assert wrong["Authorization"] not in caplog.text


def test_nsqlookupd(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with Lookupd(tmp_path / "one") as lookupd:
        for headers in FOREIGN:
            assert lookupd.http("POST", "/topic/create?topic=t", headers=headers)[0] == 403
        assert lookupd.http("POST", "/topic/create?topic=t")[0] == 200
    flags = (f"--http-secret-file={tmp_path / 'secret'}",)
    with Lookupd(tmp_path / "two", *flags) as lookupd:
        right = {"Authorization": f"Bearer {SECRET}"}
        assert lookupd.http("POST", "/topic/create?topic=t")[0] == 401
        assert lookupd.http("POST", "/topic/create?topic=t", headers=right)[0] == 200
        assert lookupd.http("GET", "/topics") == (200, b'{"topics":["t"]}')
        assert SECRET not in lookupd.stderr()
