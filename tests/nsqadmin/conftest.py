"""One installation for the tests of this folder: a lookupd, an nsqd, an nsqadmin; and an nsqadmin
where one has to log in."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually
from penstock.nsqadmin.access import Role

from .running import Admin, with_users

USERS = {"vera": Role.VIEW, "otto": Role.OPERATE, "dora": Role.DESTROY}
HOUR_MS = 3_600_000  # a client of a test that answers no heartbeat lives as long as the test


class Installation(NamedTuple):
    lookupd: Lookupd
    nsqd: Daemon
    admin: Admin

    @property
    def of_nsqd(self) -> str:
        """The flag of another nsqadmin for this nsqd."""
        return f"-nsqd-http-address=127.0.0.1:{self.nsqd.http_port}"

    @property
    def of_lookupd(self) -> str:
        return f"-lookupd-http-address=127.0.0.1:{self.lookupd.http_port}"

    def wait_for_topic(self, topic: str) -> None:
        """Until nsqlookupd knows it."""
        eventually(lambda: topic in self.admin.json("GET", "/api/topics")["topics"])

    @contextmanager
    def topic(self, name: str, *channels: str, bodies: Iterable[bytes] = ()) -> Iterator[Daemon]:
        """The nsqd that has it, and messages in it, until the end."""
        self.nsqd.make(name, *channels)
        for body in bodies:
            self.nsqd.post(f"/pub?topic={name}", body)
        self.wait_for_topic(name)
        yield self.nsqd
        self.nsqd.post(f"/topic/delete?topic={name}")


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    path = tmp_path_factory.mktemp("admin")
    with Lookupd(path / "lookupd") as lookupd:
        flags = (f"-lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
                "-broadcast-address=127.0.0.1",
                f"-max-heartbeat-interval={HOUR_MS}ms")  # fmt: skip
        asked = f"-lookupd-http-address=127.0.0.1:{lookupd.http_port}"
        with Daemon(path / "nsqd", *flags) as nsqd, Admin(path / "nsqadmin", asked) as admin:
            yield Installation(lookupd, nsqd, admin)


@pytest.fixture(scope="session")
def guarded(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    """With USERS, so that everybody has to log in. Who changes them puts them back."""
    path = with_users(tmp_path_factory.mktemp("guarded") / "admin", **USERS)
    with Admin(path, installation.of_nsqd) as admin:
        yield admin
