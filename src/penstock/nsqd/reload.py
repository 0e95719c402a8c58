"""What a running nsqd takes from its configuration when that is read again (SIGHUP).

Certificates, keys and authorities, the addresses of nsqlookupds and the log level: the same that
`/config` changes, and what a certificate's renewal needs. Connections keep what they have. All
else is named in the log and waits for a restart.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Any

from penstock.errors import ConfigError
from penstock.nsqd.options import Options
from penstock.nsqd.tls import client_context, server_context

log = logging.getLogger("penstock.nsqd")

TLS = frozenset(
    {"tls-cert", "tls-key", "tls-root-ca-file", "tls-client-auth-policy", "tls-min-version"}
)
RELOADED = TLS | {"log-level", "lookupd-tcp-address"}


def new_contexts(
    options: Options, serves_tls: bool
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For clients of ours, and for requests of ours. Raises ConfigError, and then the old ones
    stay."""
    server = server_context(options)
    if (server is not None) != serves_tls:
        rule = "TLS cannot be switched on or off while nsqd runs: restart it"
        raise ConfigError("tls-cert", options.tls_cert, rule)
    return server, client_context(options)


def report(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Say what has changed and what a restart is needed for."""
    changed = [name for name, value in now.items() if before[name] != value]
    waiting = ", ".join(f"-{name}" for name in changed if name not in RELOADED)
    if waiting:
        log.warning("changed, but only a restart makes it so: %s", waiting)
    log.info("reloaded: certificates, nsqlookupds and the log level")
