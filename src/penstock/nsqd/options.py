"""Every option of nsqd: the official flags, and ours.

A flag that has no meaning here is still accepted, so that an existing command line
starts; the log says once that it has no effect.

Unlike nsqd it listens on the loopback interface unless it is told otherwise.
"""

import hashlib
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import limits
from penstock.command.flags import flag, flags_of, options_of, resolve
from penstock.command.program import (
    ALLOWED_HOST,
    CONNECT_TIMEOUT,
    ETCD_CA,
    PASSWORD_FILE,
    REQUEST_TIMEOUT,
    SECRET_FILE,
    CommonOptions,
    log_prefix,
)
from penstock.errors import ConfigError
from penstock.net.gate import check_allowed

SECOND = limits.SECOND
MS = limits.MS

TOPOLOGY_AWARE = "topology-aware-consumption"


def default_node_id(hostname: str) -> int:
    """NSQ's own rule, so that ids stay recognisable when a host moves over."""
    digest = hashlib.md5(hostname.encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % (limits.NODE_ID_MAX + 1)


_HOSTNAME = socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    # fmt: off
    log_prefix: str = log_prefix("nsqd")
    # who it is
    node_id: int = flag(default_node_id(_HOSTNAME), "0 to 1023, part of message ids", key="id",
        bounds=(0, limits.NODE_ID_MAX))
    worker_id: int = flag(0, "deprecated; use -node-id", has_effect=False)
    tcp_address: str = flag("127.0.0.1:4150", "<addr>:<port> or a unix socket path for TCP "
        "clients; loopback by default")
    http_address: str = flag("127.0.0.1:4151", "<addr>:<port> or a unix socket path for HTTP "
        "clients; loopback by default; empty: no HTTP")
    https_address: str = flag("127.0.0.1:4152", "<addr>:<port> or a unix socket path for HTTPS "
        "clients, where there is a certificate; empty: no HTTPS")
    http_allowed_host: tuple[str, ...] = ALLOWED_HOST
    http_secret_file: str = SECRET_FILE
    broadcast_address: str = flag(_HOSTNAME, "address advertised to clients")
    broadcast_tcp_port: int = flag(0, "TCP port advertised to clients (0: the real one)",
        bounds=(0, 65535))
    broadcast_http_port: int = flag(0, "HTTP port advertised to clients (0: the real one)",
        bounds=(0, 65535))
    lookupd_tcp_address: tuple[str, ...] = flag((), "lookupd TCP address (may be repeated)",
        key="nsqlookupd_tcp_addresses")
    http_client_connect_timeout_ns: int = CONNECT_TIMEOUT
    http_client_request_timeout_ns: int = REQUEST_TIMEOUT
    topology_region: str = flag("", "region advertised to clients")
    topology_zone: str = flag("", "zone advertised to clients")
    # several nodes
    cluster: str = flag("", "etcd://[user@]host:port[,host:port...][/name]: be a node of the "
        "cluster of this name (default: penstock), whose metadata is in that etcd; etcds is over "
        "TLS; empty: a node by itself")
    replication_address: str = flag("127.0.0.1:4154", "<addr>:<port> where the other nodes of the "
        "cluster connect")
    zone: str = flag("", "replicas of a partition are spread over zones (default: -topology-zone)")
    cluster_secret_file: str = flag("", "file with the secret that all nodes of a cluster share")
    cluster_tls_cert: str = flag("", "certificate (PEM) for connections between nodes")
    cluster_tls_key: str = flag("", "its key")
    cluster_tls_ca: str = flag("", "the authority that signs the certificates of nodes")
    cluster_etcd_ca: str = ETCD_CA
    cluster_password_file: str = PASSWORD_FILE
    cluster_replace: bool = flag(False, "this empty node takes the place of the one with its "
        "-node-id, which is gone for good")
    cluster_import_topics: bool = flag(False, "topics that this node had by itself become topics "
        "of the cluster, for good")
    cluster_silence_ns: int = flag(limits.PEER_SILENCE_NS, "a node that is silent for this long "
        "counts as failed", bounds=(SECOND, 60 * SECOND))
    replica_timeout_ns: int = flag(limits.REPLICA_TIMEOUT_NS, "a replica that does not answer for "
        "this long leaves the in-sync set", bounds=(SECOND, 60 * SECOND))
    # what it stores
    data_path: str = flag("", "where messages are stored (must exist; empty: here)")
    durability: str = flag("disk", "when a publish is answered: disk (after fdatasync) or os "
        "(after the write)", choices=("disk", "os"))
    sync_every: int = flag(limits.SYNC_EVERY_COUNT, "messages between fsyncs, durability os",
        bounds=(1, None))
    sync_timeout_ns: int = flag(limits.SYNC_TIMEOUT_NS, "time between fsyncs, durability os",
        bounds=(1, None))
    min_disk_free: int = flag(limits.DISK_FREE_BYTES_MIN, "publishes are refused when fewer bytes "
        "are free", bounds=(0, None))
    retain_age_ns: int = flag(limits.RETAIN_AGE_NS, "how long consumed messages are kept",
        bounds=(0, None))
    retain_bytes: int = flag(limits.RETAIN_BYTES, "how many bytes of consumed messages are kept "
        "per partition", bounds=(0, None))
    default_partitions: int = flag(1, "partitions of a topic that is made without a number: by a "
        "publisher or a subscriber, too", bounds=(1, limits.PARTITIONS_MAX))
    sub_extend_must: bool = flag(False, "consumers of a topic with headers have to say "
        "extend_support; else they get messages without headers")
    max_depth: int = flag(0, "refuse publishes when a topic has this many unfinished messages (0: "
        "no limit); a topic may have its own, see /topic/config", bounds=(0, None))
    max_age_ns: int = flag(0, "unfinished messages are dropped when they get older than this (0: "
        "no limit); a topic may have its own, see /topic/config", bounds=(0, None))
    trace_rate: float = flag(0.0, "share of the messages whose life is traced, 0 to 1; a topic or "
        "channel may have its own, see /topic/config", bounds=(0, 1))
    max_pub_waiting_size: int = flag(limits.WAITING_BYTES_MAX, "bytes of publishes that may wait "
        "to be stored in a partition; more are refused (0: no limit)", bounds=(0, None))
    ack_retry_cnt: int = flag(0, "a message that was sent more often than this, and is older than "
        "-ack-old-than-time, is finished by nsqd instead of being sent again (0: never); a channel "
        "may have its own, see /channel/config", bounds=(0, limits.ATTEMPTS_MAX))
    ack_old_than_time_ns: int = flag(0, "see -ack-retry-cnt (0: never)", bounds=(0, None))
    idle_topic_delete_ns: int = flag(0, "delete topics without publishes and consumers for this "
        "long, if they hold no messages (0: never)", bounds=(0, None))
    idle_channel_delete_ns: int = flag(0, "delete channels without consumers for this long, if "
        "they hold no messages (0: never)", bounds=(0, None))
    idle_delete_backlog: bool = flag(False, "idle topics and channels are deleted with the "
        "messages that they hold")
    segment_bytes: int = flag(limits.SEGMENT_BYTES_MAX, "a log segment rolls at this size",
        bounds=(64 * limits.KIB, limits.SEGMENT_BYTES_MAX * 16))
    segment_age_ns: int = flag(limits.SEGMENT_AGE_MAX_NS, "a log segment rolls then",
        bounds=(SECOND, None))
    mem_queue_size: int = flag(limits.EPHEMERAL_DEPTH_MAX, "messages that an ephemeral channel "
        "holds; all others are on disk", bounds=(0, None))
    max_bytes_per_file: int = flag(104857600, "see -segment-bytes", has_effect=False)
    queue_scan_worker_pool_max: int = flag(4, "timers need no scan here", has_effect=False)
    queue_scan_selection_count: int = flag(20, "timers need no scan here", has_effect=False)
    # messages
    msg_timeout_ns: int = flag(limits.MESSAGE_TIMEOUT_NS, "default time until a message is "
        "requeued", bounds=(MS, None))
    max_msg_timeout_ns: int = flag(limits.MESSAGE_TIMEOUT_MAX_NS, "the longest that a client may "
        "ask for", bounds=(MS, None))
    max_msg_size: int = flag(limits.MESSAGE_BYTES_MAX, "maximum size of a message in bytes",
        bounds=(1, limits.BODY_BYTES_CEILING))
    max_body_size: int = flag(limits.BODY_BYTES_MAX, "maximum size of a command body",
        bounds=(1, limits.BODY_BYTES_CEILING))
    max_req_timeout_ns: int = flag(limits.REQUEUE_DELAY_MAX_NS, "maximum delay of REQ and DPUB",
        bounds=(0, None))
    # clients
    max_heartbeat_interval_ns: int = flag(limits.HEARTBEAT_MAX_NS, "maximum that a client may ask "
        "for", bounds=(SECOND, None))
    max_rdy_count: int = flag(limits.RDY_COUNT_MAX, "maximum RDY count of a client",
        bounds=(1, (1 << 31) - 1))
    max_output_buffer_size: int = flag(limits.OUTPUT_BUFFER_BYTES_MAX, "maximum that a client may "
        "ask for", bounds=(64, None))
    max_output_buffer_timeout_ns: int = flag(30 * SECOND, "maximum that a client may ask for",
        bounds=(0, None))
    min_output_buffer_timeout_ns: int = flag(25 * MS, "minimum that a client may ask for",
        bounds=(0, None))
    output_buffer_timeout_ns: int = flag(limits.OUTPUT_BUFFER_TIMEOUT_NS, "deliveries are held "
        "back only for clients that ask for more than this", bounds=(0, None))
    max_channel_consumers: int = flag(0, "consumers per channel (0: no limit)", bounds=(0, None))
    deflate: bool = flag(True, "let clients ask for deflate")
    max_deflate_level: int = flag(6, "maximum deflate level that a client may ask for",
        bounds=(1, 9))
    snappy: bool = flag(True, "let clients ask for snappy")
    # TLS and authentication
    tls_cert: str = flag("", "path to a certificate file (PEM)")
    tls_key: str = flag("", "path to its key (PEM, not encrypted)")
    tls_client_auth_policy: str = flag("", "require (a client certificate, whoever signed it) or "
        "require-verify; either one implies -tls-required, and overrules -tls-required=false",
        choices=("", "require", "require-verify"))
    tls_root_ca_file: str = flag("", "path to the authorities that sign clients")
    tls_required: str = flag("false", "true, false, or tcp-https (plain HTTP stays)",
        choices=("true", "false", "tcp-https", "1", "0"), bare="true")
    tls_min_version: str = flag("", "tls1.0 to tls1.3; tls1.2 at least is what you get",
        choices=("", "tls1.0", "tls1.1", "tls1.2", "tls1.3"))
    auth_http_address: tuple[str, ...] = flag((), "auth server (may be repeated)",
        key="auth_http_addresses")
    auth_http_request_method: str = flag("get", "how auth servers are asked: get or post")
    # metrics
    statsd_address: str = flag("", "UDP <addr>:<port> of a statsd daemon")
    statsd_interval_ns: int = flag(60 * SECOND, "between pushes to statsd", bounds=(10 * MS, None))
    statsd_mem_stats: bool = flag(True, "push memory figures to statsd")
    statsd_prefix: str = flag("nsq.%s", "prefix of statsd keys (%s: this host)")
    statsd_udp_packet_size: int = flag(508, "bytes of a statsd packet", bounds=(1, 65507))
    statsd_exclude_ephemeral: bool = flag(False, "leave ephemerals out of statsd")
    e2e_processing_latency_percentile: tuple[float, ...] = flag((), "percentiles of the time from "
        "publish to finish, above 0 and up to 1 (may be repeated, or a list with commas)",
        key="e2e_processing_latency_percentiles")
    e2e_processing_latency_window_time_ns: int = flag(limits.LATENCY_WINDOW_NS, "window of those",
        bounds=(2 * SECOND, None))
    enable_experiment: tuple[str, ...] = flag((), "topology-aware-consumption: messages go to "
        "consumers of the same zone first, then of the same region")
    # fmt: on
    without_effect: tuple[str, ...] = ()  # flags that were set and do nothing yet
    all_values: Mapping[str, Any] = field(default_factory=dict)  # by flag, read by somebody or not

    @property
    def topology_aware(self) -> bool:
        """Experiments of other names are accepted, as in NSQ."""
        return TOPOLOGY_AWARE in self.enable_experiment


FLAGS = flags_of(Options)


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises UsageError, ConfigError and HelpWanted (`command/flags.py`)."""
    options = _options(resolve(FLAGS, arguments, environment))
    if not options.version:
        for one in options.e2e_processing_latency_percentile:
            if not 0 < one <= 1:
                rule = "above 0, and 1 at most"
                raise ConfigError("e2e-processing-latency-percentile", one, rule)
        method = options.auth_http_request_method
        if method not in ("get", "post"):
            raise ConfigError("auth-http-request-method", method, "get or post")
        check_allowed(options.http_allowed_host)
    return options


def _options(given: Mapping[str, Any]) -> Options:
    values = {**given, "tls_required": _tls_required(given)}
    percentiles = "e2e_processing_latency_percentile"
    values[percentiles] = tuple(sorted(values[percentiles], reverse=True))
    values["auth_http_request_method"] = given["auth_http_request_method"].lower()
    idle = tuple(flag.name for flag in FLAGS
                 if not flag.has_effect and given[flag.attribute] != flag.default)  # fmt: skip
    # What `/config` shows is what is in force: of these, not the words that the operator wrote.
    everything = {flag.name: values[flag.attribute] for flag in FLAGS}
    return options_of(Options, values, without_effect=idle, all_values=everything)


def _tls_required(given: Mapping[str, Any]) -> str:
    """A policy for client certificates means nothing to a client that may stay in the clear, so
    it implies TLS, as in NSQ, even where -tls-required says false."""
    text: str = given["tls_required"]
    wanted = {"1": "true", "0": "false"}.get(text, text)
    return "true" if wanted == "false" and given["tls_client_auth_policy"] else wanted
