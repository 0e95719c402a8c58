"""Flags that our daemons have in common, the fields that they become, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass

from penstock import limits
from penstock.command.flags import LOG_LEVELS, Flag, Kind, Ranges

FETCH_RANGES: Ranges = {
    "http_client_connect_timeout_ns": (limits.MS, None),
    "http_client_request_timeout_ns": (limits.MS, None),
}


def first_flags(program: str) -> tuple[Flag, ...]:
    """What every daemon's help begins with."""
    return (
        Flag("version", Kind.BOOL, False, "print version string"),
        Flag("config", Kind.STRING, "", "path to a TOML config file"),
        Flag("log-level", Kind.STRING, "info", "set log verbosity", choices=LOG_LEVELS),
        Flag("log-prefix", Kind.STRING, f"[{program}] ", "log message prefix"),
        Flag(
            "log-format", Kind.STRING, "text", "log lines as text or json", choices=("text", "json")
        ),
        Flag("verbose", Kind.BOOL, False, "deprecated; use -log-level"),
    )


def fetch_flags() -> tuple[Flag, ...]:
    """Of daemons that ask others over HTTP."""
    return (
        Flag(
            "http-client-connect-timeout",
            Kind.DURATION,
            limits.FETCH_CONNECT_NS,
            "time to connect for an outgoing HTTP request",
        ),
        Flag(
            "http-client-request-timeout",
            Kind.DURATION,
            limits.FETCH_REQUEST_NS,
            "time for an outgoing HTTP request, in all",
        ),
    )


def gate_flags() -> tuple[Flag, ...]:
    """Of daemons that are commanded over HTTP."""
    return (
        Flag(
            "http-allowed-host",
            Kind.STRINGS,
            (),
            "host name under which HTTP clients and web pages may send requests, besides this"
            " host's own; * for any (may be repeated)",
        ),
        Flag(
            "http-secret-file",
            Kind.STRING,
            "",
            "file with the secret that HTTP requests must carry to change anything",
        ),
    )


def etcd_flags() -> tuple[Flag, ...]:
    """Of daemons of a cluster."""
    return (
        Flag(
            "cluster-etcd-ca",
            Kind.STRING,
            "",
            "the authority that signs etcd's certificate (default: the system's)",
        ),
        Flag("cluster-password-file", Kind.STRING, "", "file with the password of etcd's user"),
    )


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Each field is the flag of the same name."""

    version: bool
    config: str
    log_level: str
    log_prefix: str
    log_format: str
