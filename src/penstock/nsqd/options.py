"""Every option of nsqd: the official flags, and ours.

One table. A flag that has no meaning here is still accepted, so that an existing command line
starts; the log says once that it has no effect.

Unlike nsqd it listens on the loopback interface unless it is told otherwise.
"""

import hashlib
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from penstock import limits
from penstock.command.flags import Effect, Flag, Kind, Resolved, check_bounds, resolve
from penstock.command.program import (
    CommonOptions,
    etcd_flags,
    fetch_flags,
    first_flags,
    gate_flags,
)
from penstock.errors import ConfigError
from penstock.net.gate import check_allowed

SECOND = limits.SECOND
MS = limits.MS
LATER = Effect.LATER

TOPOLOGY_AWARE = "topology-aware-consumption"


def default_node_id(hostname: str) -> int:
    """NSQ's own rule, so that ids stay recognisable when a host moves over."""
    digest = hashlib.md5(hostname.encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % (limits.NODE_ID_MAX + 1)


_HOSTNAME = socket.gethostname()

FLAGS: tuple[Flag, ...] = (
    *first_flags("nsqd"),
    # who it is
    Flag("node-id", Kind.INT, default_node_id(_HOSTNAME), "0 to 1023, part of message ids", "id",
         bounds=(0, limits.NODE_ID_MAX)),
    Flag("worker-id", Kind.INT, 0, "deprecated; use -node-id", effect=LATER),
    Flag("tcp-address", Kind.STRING, "127.0.0.1:4150", "<addr>:<port> or a unix socket path for TCP"
         " clients; loopback by default"),
    Flag("http-address", Kind.STRING, "127.0.0.1:4151", "<addr>:<port> or a unix socket path for"
         " HTTP clients; loopback by default; empty: no HTTP"),
    Flag("https-address", Kind.STRING, "127.0.0.1:4152", "<addr>:<port> or a unix socket path for"
         " HTTPS clients, where there is a certificate; empty: no HTTPS"),
    *gate_flags(),
    Flag("broadcast-address", Kind.STRING, _HOSTNAME, "address advertised to clients"),
    Flag("broadcast-tcp-port", Kind.INT, 0, "TCP port advertised to clients (0: the real one)",
         bounds=(0, 65535)),
    Flag("broadcast-http-port", Kind.INT, 0, "HTTP port advertised to clients (0: the real one)",
         bounds=(0, 65535)),
    Flag("lookupd-tcp-address", Kind.STRINGS, (), "lookupd TCP address (may be repeated)",
         "nsqlookupd_tcp_addresses"),
    *fetch_flags(),
    Flag("topology-region", Kind.STRING, "", "region advertised to clients"),
    Flag("topology-zone", Kind.STRING, "", "zone advertised to clients"),
    # several nodes
    Flag("cluster", Kind.STRING, "", "etcd://[user@]host:port[,host:port...][/name]: be a node of"
         " the cluster of this name (default: penstock), whose metadata is in that etcd; etcds is"
         " over TLS; empty: a node by itself"),
    Flag("replication-address", Kind.STRING, "127.0.0.1:4154", "<addr>:<port> where the other nodes"
         " of the cluster connect"),
    Flag("zone", Kind.STRING, "", "replicas of a partition are spread over zones (default:"
         " -topology-zone)"),
    Flag("cluster-secret-file", Kind.STRING, "", "file with the secret that all nodes of a cluster"
         " share"),
    Flag("cluster-tls-cert", Kind.STRING, "", "certificate (PEM) for connections between nodes"),
    Flag("cluster-tls-key", Kind.STRING, "", "its key"),
    Flag("cluster-tls-ca", Kind.STRING, "", "the authority that signs the certificates of nodes"),
    *etcd_flags(),
    Flag("cluster-replace", Kind.BOOL, False, "this empty node takes the place of the one with its"
         " -node-id, which is gone for good"),
    Flag("cluster-import-topics", Kind.BOOL, False, "topics that this node had by itself become"
         " topics of the cluster, for good"),
    Flag("cluster-silence", Kind.DURATION, limits.PEER_SILENCE_NS, "a node that is silent for this"
         " long counts as failed", bounds=(SECOND, 60 * SECOND)),
    Flag("replica-timeout", Kind.DURATION, limits.REPLICA_TIMEOUT_NS, "a replica that does not"
         " answer for this long leaves the in-sync set", bounds=(SECOND, 60 * SECOND)),
    # what it stores
    Flag("data-path", Kind.STRING, "", "where messages are stored (must exist; empty: here)"),
    Flag("durability", Kind.STRING, "disk", "when a publish is answered: disk (after fdatasync) or"
         " os (after the write)", choices=("disk", "os")),
    Flag("sync-every", Kind.INT, limits.SYNC_EVERY_COUNT, "messages between fsyncs, durability os",
         bounds=(1, None)),
    Flag("sync-timeout", Kind.DURATION, limits.SYNC_TIMEOUT_NS, "time between fsyncs, durability"
         " os", bounds=(1, None)),
    Flag("min-disk-free", Kind.INT, limits.DISK_FREE_BYTES_MIN, "publishes are refused when fewer"
         " bytes are free", bounds=(0, None)),
    Flag("retain-age", Kind.DURATION, limits.RETAIN_AGE_NS, "how long consumed messages are kept",
         bounds=(0, None)),
    Flag("retain-bytes", Kind.INT, limits.RETAIN_BYTES, "how many bytes of consumed messages are"
         " kept per partition", bounds=(0, None)),
    Flag("default-partitions", Kind.INT, 1, "partitions of a topic that is made without a number:"
         " by a publisher or a subscriber, too", bounds=(1, limits.PARTITIONS_MAX)),
    Flag("sub-extend-must", Kind.BOOL, False, "consumers of a topic with headers have to say"
         " extend_support; else they get messages without headers"),
    Flag("max-depth", Kind.INT, 0, "refuse publishes when a topic has this many unfinished"
         " messages (0: no limit); a topic may have its own, see /topic/config", bounds=(0, None)),
    Flag("max-age", Kind.DURATION, 0, "unfinished messages are dropped when they get older than"
         " this (0: no limit); a topic may have its own, see /topic/config", bounds=(0, None)),
    Flag("trace-rate", Kind.FLOAT, 0.0, "share of the messages whose life is traced, 0 to 1; a"
         " topic or channel may have its own, see /topic/config", bounds=(0, 1)),
    Flag("max-pub-waiting-size", Kind.INT, limits.WAITING_BYTES_MAX, "bytes of publishes"
         " that may wait to be stored in a partition; more are refused (0: no limit)",
         bounds=(0, None)),
    Flag("ack-retry-cnt", Kind.INT, 0, "a message that was sent more often than this, and is older"
         " than -ack-old-than-time, is finished by nsqd instead of being sent again (0: never); a"
         " channel may have its own, see /channel/config", bounds=(0, limits.ATTEMPTS_MAX)),
    Flag("ack-old-than-time", Kind.DURATION, 0, "see -ack-retry-cnt (0: never)", bounds=(0, None)),
    Flag("idle-topic-delete", Kind.DURATION, 0, "delete topics without publishes and consumers for"
         " this long, if they hold no messages (0: never)", bounds=(0, None)),
    Flag("idle-channel-delete", Kind.DURATION, 0, "delete channels without consumers for this long,"
         " if they hold no messages (0: never)", bounds=(0, None)),
    Flag("idle-delete-backlog", Kind.BOOL, False, "idle topics and channels are deleted with the"
         " messages that they hold"),
    Flag("segment-bytes", Kind.INT, limits.SEGMENT_BYTES_MAX, "a log segment rolls at this size",
         bounds=(64 * limits.KIB, limits.SEGMENT_BYTES_MAX * 16)),
    Flag("segment-age", Kind.DURATION, limits.SEGMENT_AGE_MAX_NS, "a log segment rolls then",
         bounds=(SECOND, None)),
    Flag("mem-queue-size", Kind.INT, limits.EPHEMERAL_DEPTH_MAX, "messages that an ephemeral"
         " channel holds; all others are on disk", bounds=(0, None)),
    Flag("max-bytes-per-file", Kind.INT, 104857600, "see -segment-bytes", effect=LATER),
    Flag("queue-scan-worker-pool-max", Kind.INT, 4, "timers need no scan here", effect=LATER),
    Flag("queue-scan-selection-count", Kind.INT, 20, "timers need no scan here", effect=LATER),
    # messages
    Flag("msg-timeout", Kind.DURATION, limits.MESSAGE_TIMEOUT_NS, "default time until a message is"
         " requeued", bounds=(MS, None)),
    Flag("max-msg-timeout", Kind.DURATION, limits.MESSAGE_TIMEOUT_MAX_NS, "the longest that a"
         " client may ask for", bounds=(MS, None)),
    Flag("max-msg-size", Kind.INT, limits.MESSAGE_BYTES_MAX, "maximum size of a message in bytes",
         bounds=(1, limits.BODY_BYTES_CEILING)),
    Flag("max-body-size", Kind.INT, limits.BODY_BYTES_MAX, "maximum size of a command body",
         bounds=(1, limits.BODY_BYTES_CEILING)),
    Flag("max-req-timeout", Kind.DURATION, limits.REQUEUE_DELAY_MAX_NS, "maximum delay of REQ and"
         " DPUB", bounds=(0, None)),
    # clients
    Flag("max-heartbeat-interval", Kind.DURATION, limits.HEARTBEAT_MAX_NS, "maximum that a client"
         " may ask for", bounds=(SECOND, None)),
    Flag("max-rdy-count", Kind.INT, limits.RDY_COUNT_MAX, "maximum RDY count of a client",
         bounds=(1, (1 << 31) - 1)),
    Flag("max-output-buffer-size", Kind.INT, limits.OUTPUT_BUFFER_BYTES_MAX, "maximum that a client"
         " may ask for", bounds=(64, None)),
    Flag("max-output-buffer-timeout", Kind.DURATION, 30 * SECOND, "maximum that a client may ask"
         " for", bounds=(0, None)),
    Flag("min-output-buffer-timeout", Kind.DURATION, 25 * MS, "minimum that a client may ask for",
         bounds=(0, None)),
    Flag("output-buffer-timeout", Kind.DURATION, limits.OUTPUT_BUFFER_TIMEOUT_NS, "deliveries are"
         " held back only for clients that ask for more than this", bounds=(0, None)),
    Flag("max-channel-consumers", Kind.INT, 0, "consumers per channel (0: no limit)",
         bounds=(0, None)),
    Flag("deflate", Kind.BOOL, True, "let clients ask for deflate"),
    Flag("max-deflate-level", Kind.INT, 6, "maximum deflate level that a client may ask for",
         bounds=(1, 9)),
    Flag("snappy", Kind.BOOL, True, "let clients ask for snappy"),
    # TLS and authentication
    Flag("tls-cert", Kind.STRING, "", "path to a certificate file (PEM)"),
    Flag("tls-key", Kind.STRING, "", "path to its key (PEM, not encrypted)"),
    Flag("tls-client-auth-policy", Kind.STRING, "", "require (a client certificate, whoever signed"
         " it) or require-verify; either one implies -tls-required, and overrules"
         " -tls-required=false", choices=("", "require", "require-verify")),
    Flag("tls-root-ca-file", Kind.STRING, "", "path to the authorities that sign clients"),
    Flag("tls-required", Kind.STRING, "false", "true, false, or tcp-https (plain HTTP stays)",
         choices=("true", "false", "tcp-https", "1", "0"), bare="true"),
    Flag("tls-min-version", Kind.STRING, "", "tls1.0 to tls1.3; tls1.2 at least is what you get",
         choices=("", "tls1.0", "tls1.1", "tls1.2", "tls1.3")),
    Flag("auth-http-address", Kind.STRINGS, (), "auth server (may be repeated)",
         "auth_http_addresses"),
    Flag("auth-http-request-method", Kind.STRING, "get", "how auth servers are asked: get or post"),
    # metrics
    Flag("statsd-address", Kind.STRING, "", "UDP <addr>:<port> of a statsd daemon"),
    Flag("statsd-interval", Kind.DURATION, 60 * SECOND, "between pushes to statsd",
         bounds=(10 * MS, None)),
    Flag("statsd-mem-stats", Kind.BOOL, True, "push memory figures to statsd"),
    Flag("statsd-prefix", Kind.STRING, "nsq.%s", "prefix of statsd keys (%s: this host)"),
    Flag("statsd-udp-packet-size", Kind.INT, 508, "bytes of a statsd packet", bounds=(1, 65507)),
    Flag("statsd-exclude-ephemeral", Kind.BOOL, False, "leave ephemerals out of statsd"),
    Flag("e2e-processing-latency-percentile", Kind.FLOATS, (), "percentiles of the time from"
         " publish to finish, above 0 and up to 1 (may be repeated, or a list with commas)",
         "e2e_processing_latency_percentiles"),
    Flag("e2e-processing-latency-window-time", Kind.DURATION, limits.LATENCY_WINDOW_NS, "window of"
         " those", bounds=(2 * SECOND, None)),
    Flag("enable-experiment", Kind.STRINGS, (), "topology-aware-consumption: messages go to"
         " consumers of the same zone first, then of the same region"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """The options that something reads. Each field is the flag of the same name."""

    node_id: int
    tcp_address: str
    http_address: str
    http_allowed_host: tuple[str, ...]
    http_secret_file: str
    https_address: str
    broadcast_address: str
    broadcast_tcp_port: int
    broadcast_http_port: int
    lookupd_tcp_address: tuple[str, ...]
    auth_http_address: tuple[str, ...]
    auth_http_request_method: str
    http_client_connect_timeout_ns: int
    http_client_request_timeout_ns: int
    cluster: str
    replication_address: str
    zone: str
    cluster_secret_file: str
    cluster_tls_cert: str
    cluster_tls_key: str
    cluster_tls_ca: str
    cluster_etcd_ca: str
    cluster_password_file: str
    cluster_replace: bool
    cluster_import_topics: bool
    cluster_silence_ns: int
    replica_timeout_ns: int
    topology_region: str
    topology_zone: str
    enable_experiment: tuple[str, ...]
    e2e_processing_latency_percentile: tuple[float, ...]  # falling
    e2e_processing_latency_window_time_ns: int
    data_path: str
    durability: str
    sync_every: int
    sync_timeout_ns: int
    min_disk_free: int
    retain_age_ns: int
    retain_bytes: int
    default_partitions: int
    sub_extend_must: bool
    max_depth: int
    max_age_ns: int
    trace_rate: float
    max_pub_waiting_size: int
    ack_retry_cnt: int
    ack_old_than_time_ns: int
    idle_topic_delete_ns: int
    idle_channel_delete_ns: int
    idle_delete_backlog: bool
    segment_bytes: int
    segment_age_ns: int
    mem_queue_size: int
    msg_timeout_ns: int
    max_msg_timeout_ns: int
    max_msg_size: int
    max_body_size: int
    max_req_timeout_ns: int
    max_heartbeat_interval_ns: int
    max_rdy_count: int
    max_output_buffer_size: int
    max_output_buffer_timeout_ns: int
    min_output_buffer_timeout_ns: int
    output_buffer_timeout_ns: int
    max_channel_consumers: int
    deflate: bool
    max_deflate_level: int
    snappy: bool
    tls_cert: str
    tls_key: str
    tls_client_auth_policy: str
    tls_root_ca_file: str
    tls_required: str  # true, false or tcp-https
    tls_min_version: str
    statsd_address: str
    statsd_interval_ns: int
    statsd_mem_stats: bool
    statsd_prefix: str
    statsd_udp_packet_size: int
    statsd_exclude_ephemeral: bool
    without_effect: tuple[str, ...] = ()  # flags that were set and do nothing yet
    all_values: Mapping[str, Any] = field(default_factory=dict)  # by flag, read by somebody or not

    @property
    def topology_aware(self) -> bool:
        """Experiments of other names are accepted, as in NSQ."""
        return TOPOLOGY_AWARE in self.enable_experiment


_MADE = ("without_effect", "all_values")  # fields that are no flags
_FIELDS = tuple(field.name for field in fields(Options) if field.name not in _MADE)


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises UsageError, ConfigError and HelpWanted (`command/flags.py`)."""
    resolved = resolve(FLAGS, arguments, environment)
    options = make_options(resolved)
    if not options.version:
        check_bounds(options, FLAGS)
        _check_percentiles(options.e2e_processing_latency_percentile)
        _check_method(options.auth_http_request_method)
        check_allowed(options.http_allowed_host)
    return options


def _check_method(method: str) -> None:
    if method not in ("get", "post"):
        raise ConfigError("auth-http-request-method", method, "get or post")


def make_options(resolved: Resolved) -> Options:
    values: dict[str, Any] = {name: resolved.values[name] for name in _FIELDS}
    values["tls_required"] = _tls_required(resolved)
    percentiles = "e2e_processing_latency_percentile"
    values[percentiles] = tuple(sorted(values[percentiles], reverse=True))
    values["auth_http_request_method"] = resolved.values["auth_http_request_method"].lower()
    idle = tuple(
        flag.name
        for flag in FLAGS
        if flag.effect is LATER and resolved.explicit.get(flag.name, flag.default) != flag.default
    )
    # What `/config` shows is what is in force: of these, not the words that the operator wrote.
    everything = {
        flag.name: values.get(flag.attribute, resolved.values[flag.attribute]) for flag in FLAGS
    }
    return Options(**values, without_effect=idle, all_values=everything)


def _check_percentiles(percentiles: tuple[float, ...]) -> None:
    for one in percentiles:
        if not 0 < one <= 1:
            raise ConfigError("e2e-processing-latency-percentile", one, "above 0, and 1 at most")


def _tls_required(resolved: Resolved) -> str:
    """A policy for client certificates means nothing to a client that may stay in the clear, so
    it implies TLS, as in NSQ, even where -tls-required says false."""
    text: str = resolved.values["tls_required"]
    wanted = {"1": "true", "0": "false"}.get(text, text)
    return "true" if wanted == "false" and resolved.values["tls_client_auth_policy"] else wanted
