"""A real nsqadmin in a process of its own, for tests."""

import http.client
import json
import re
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from e2e.daemon import POLL_S, START_S_MAX, Daemon, DaemonFailed
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.gate import COOKIE, CSRF_HEADER
from penstock.nsqadmin.store import Store, hash_password

_HTTP = re.compile(r"HTTP: listening on \S*:(\d+)")


PASSWORD = "correct horse"


def with_users(path: Path, **roles: Role) -> Path:
    """A data path with these users, who all have the same password."""
    hashed = hash_password(PASSWORD)
    with closing(Store(path)) as store:
        for name, role in roles.items():
            store.put_user(name, hashed, role)
    return path


def logged_in(store: Store, name: str) -> dict[str, str]:
    """The headers of a new session, that may change something too."""
    token = store.begin_session(name)
    session = store.session(token, 1000.0)
    assert session is not None
    return {"Cookie": f"{COOKIE}={token}", CSRF_HEADER: session.csrf}


class Admin(Daemon):
    """`Admin(path, "-nsqd-http-address=...")`; the data path is in a directory of its own."""

    def command(self) -> list[str]:
        listening = ["-http-address=127.0.0.1:0", f"-data-path={self.data_path}"]
        given = [flag for flag in self.flags if flag.startswith("-http-address=")]
        return [sys.executable, "-m", "penstock.nsqadmin.main",
                *(listening[1:] if given else listening), *self.flags]  # fmt: skip

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        while (found := _HTTP.search(self.stderr())) is None:
            if not self.running:
                raise DaemonFailed(self.stderr())
            if time.monotonic() > deadline_s:
                raise DaemonFailed(f"not ready in {START_S_MAX} s\n{self.stderr()}")
            time.sleep(POLL_S)
        self.http_port = int(found[1])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http_port}{path}"

    def request(
        self, method: str, path: str, document: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        try:
            raw = isinstance(document, bytes)
            body = document if raw or document is None else json.dumps(document).encode()
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            if cookies := response.headers.get_all("Set-Cookie"):
                named["set-cookie"] = "\n".join(cookies)
            return response.status, response.read(), named
        finally:
            connection.close()

    def log_in(
        self, name: str, password: str = PASSWORD, target: str = "/", **headers: str
    ) -> tuple[int, dict[str, str]]:
        """By the form: the status, and the headers of the answer."""
        form = urlencode({"name": name, "password": password, "next": target}).encode()
        given = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        status, _, text = self.request("POST", "/login", form, given)
        return status, text

    def json(self, method: str, path: str, document: Any = None) -> Any:
        """The document of a 200."""
        status, body, _ = self.request(method, path, document)
        if status != 200:
            raise DaemonFailed(f"{method} {path} was answered {status} {body!r}")
        return json.loads(body)
