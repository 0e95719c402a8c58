"""The dependencies of every part of nsqadmin, created once at the start: the daemons and their
state, the charts, logins, the audit log, and notifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.net.fetch import Fetcher
from penstock.net.listener import parse_address
from penstock.net.secret_file import first_secret
from penstock.net.tls import http_client_tls
from penstock.nsqadmin.actions import Actions
from penstock.nsqadmin.audit import Audit, Notifier
from penstock.nsqadmin.connections import Connections
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.history import History
from penstock.nsqadmin.noderecords import NodeRecords, words_about
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.runs import RunWatch
from penstock.nsqadmin.store import Store
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqadmin.watch import Watch

if TYPE_CHECKING:
    from penstock.nsqadmin.oidc import OidcLogin


class Deps:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.base = options.base_path.rstrip("/")  # what every path begins with: "" or "/some"
        self.data_path = Path(options.data_path)
        self.fetcher = Fetcher(
            options.http_client_connect_timeout_ns,
            options.http_client_request_timeout_ns,
            http_client_tls(options.tls_files),
        )
        self.store = Store(self.data_path)
        secret = first_secret(options.http_client_secret_file, "http-client-secret-file")
        self.upstream = Upstream(
            self.fetcher, options.lookupd_http_address, options.nsqd_http_address, secret
        )
        self.watch = Watch(self.upstream, options.poll_interval_ns, NodeRecords(self.store))
        self.actions = Actions(self.upstream, lambda *names: words_about(self.watch.latest, *names))
        self.gate = Gate(options, self.store, parse_address(options.http_address, "http-address"))
        self.notifier = Notifier(self.fetcher, options.notification_http_endpoint)
        self.audit = Audit(self.store, self.notifier)
        self.oidc: OidcLogin | None = None
        if options.oidc_issuer:
            from penstock.nsqadmin.oidc import OidcLogin

            self.oidc = OidcLogin(options)
        self.history = History(self.data_path, options.history_retention_ns / limits.SECOND)
        self.connections = Connections(self.upstream, self.watch)
        self.runs = RunWatch(self.upstream, self.watch)
        self.configured: dict[str, Any] = {}  # options that were changed since the start

    def start(self) -> None:
        self.watch.listen(self.history.take)
        self.watch.start()

    async def stop(self) -> None:
        await self.watch.stop()
        await self.runs.stop()
        self.history.close()
        await self.notifier.close()
        await self.fetcher.close()
        self.store.close()
