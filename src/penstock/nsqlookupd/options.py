"""Every option of nsqlookupd: the official flags, and ours.

Unlike the official one it listens on the loopback interface unless it is told otherwise.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock import limits
from penstock.command.flags import flag, flags_of, options_of, resolve
from penstock.command.program import (
    ALLOWED_HOST,
    CLIENT_CA,
    CLIENT_CERT,
    CLIENT_KEY,
    ETCD_CA,
    PASSWORD_FILE,
    SECRET_FILE,
    CommonOptions,
    log_prefix,
)
from penstock.net.gate import check_allowed


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    # fmt: off
    log_prefix: str = log_prefix("nsqlookupd")
    tcp_address: str = flag("127.0.0.1:4160", "<addr>:<port> or a unix socket path for nsqd; "
        "loopback by default")
    http_address: str = flag("127.0.0.1:4161", "<addr>:<port> or a unix socket path for HTTP "
        "clients; loopback by default")
    http_allowed_host: tuple[str, ...] = ALLOWED_HOST
    http_secret_file: str = SECRET_FILE
    broadcast_address: str = flag(socket.gethostname(), "address advertised to nsqd, to ask for "
        "channels over HTTP")
    inactive_producer_timeout_ns: int = flag(limits.LOOKUP_INACTIVE_NS, "a producer that was not "
        "heard from for this long is left out of answers", bounds=(1, None))
    tombstone_lifetime_ns: int = flag(limits.LOOKUP_TOMBSTONE_NS, "how long a tombstoned producer "
        "is left out of lookups of the topic", bounds=(0, None))
    cluster: str = flag("", "etcd://[user@]host:port[,host:port...][/name]: say what the cluster "
        "of this name (default: penstock) has, whose metadata is in that etcd; etcds is over TLS; "
        "empty: what nsqds register")
    cluster_etcd_ca: str = ETCD_CA
    cluster_password_file: str = PASSWORD_FILE
    http_client_tls_root_ca_file: str = CLIENT_CA
    http_client_tls_cert: str = CLIENT_CERT
    http_client_tls_key: str = CLIENT_KEY
    # fmt: on


FLAGS = flags_of(Options)


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises UsageError, ConfigError and HelpWanted (`command/flags.py`)."""
    options = options_of(Options, resolve(FLAGS, arguments, environment))
    if not options.version:
        check_allowed(options.http_allowed_host)
    return options
