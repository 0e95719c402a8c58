"""Every option of nsqlookupd: the official flags, and ours.

Unlike the official one it listens on the loopback interface unless it is told otherwise.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from penstock import limits
from penstock.command.flags import Flag, Kind, check_bounds, resolve
from penstock.command.program import CommonOptions, etcd_flags, first_flags, gate_flags
from penstock.net.gate import check_allowed

FLAGS: tuple[Flag, ...] = (
    *first_flags("nsqlookupd"),
    Flag("tcp-address", Kind.STRING, "127.0.0.1:4160", "<addr>:<port> or a unix socket path for"
         " nsqd; loopback by default"),
    Flag("http-address", Kind.STRING, "127.0.0.1:4161", "<addr>:<port> or a unix socket path for"
         " HTTP clients; loopback by default"),
    *gate_flags(),
    Flag("broadcast-address", Kind.STRING, socket.gethostname(), "address advertised to nsqd, to"
         " ask for channels over HTTP"),
    Flag("inactive-producer-timeout", Kind.DURATION, limits.LOOKUP_INACTIVE_NS, "a producer that"
         " was not heard from for this long is left out of answers", bounds=(1, None)),
    Flag("tombstone-lifetime", Kind.DURATION, limits.LOOKUP_TOMBSTONE_NS, "how long a tombstoned"
         " producer is left out of lookups of the topic", bounds=(0, None)),
    Flag("cluster", Kind.STRING, "", "etcd://[user@]host:port[,host:port...][/name]: say what the"
         " cluster of this name (default: penstock) has, whose metadata is in that etcd; etcds is"
         " over TLS; empty: what nsqds register"),
    *etcd_flags(),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Each field is the flag of the same name."""

    tcp_address: str
    http_address: str
    http_allowed_host: tuple[str, ...]
    http_secret_file: str
    broadcast_address: str
    inactive_producer_timeout_ns: int
    tombstone_lifetime_ns: int
    cluster: str
    cluster_etcd_ca: str
    cluster_password_file: str


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises UsageError, ConfigError and HelpWanted (`command/flags.py`)."""
    values = resolve(FLAGS, arguments, environment).values
    options = Options(**{field.name: values[field.name] for field in fields(Options)})
    if not options.version:
        check_bounds(options, FLAGS)
        check_allowed(options.http_allowed_host)
    return options
