"""Names of environment variables that begin with `PENSTOCK_`, so that a misspelt one is found.

A program knows its own names. Others are right, too, in an environment that several programs
share: those of the other daemons, of pipelines and of the command line, which are listed here, and
those that Kubernetes makes for each service (`PENSTOCK_PORT_4150_TCP_ADDR`). Every other name is a
mistake: an option that somebody believes to be set.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from penstock.errors import ConfigError

PREFIX = "PENSTOCK_"
NEAR = 0.8  # so alike are two names of which one is the other misspelt

_SHARED = """
    config http_address log_format log_level log_prefix verbose version
"""
_NSQD = """
    ack_old_than_time ack_retry_cnt auth_http_addresses auth_http_request_method
    broadcast_address broadcast_http_port broadcast_tcp_port cluster cluster_etcd_ca
    cluster_import_topics cluster_password_file cluster_replace cluster_secret_file
    cluster_silence cluster_tls_ca cluster_tls_cert cluster_tls_key data_path
    default_partitions deflate replica_timeout zone replication_address
    durability e2e_processing_latency_percentiles e2e_processing_latency_window_time
    enable_experiment http_client_connect_timeout http_client_request_timeout https_address id
    idle_channel_delete idle_delete_backlog idle_topic_delete max_age max_body_size
    max_bytes_per_file max_channel_consumers max_deflate_level max_depth max_heartbeat_interval
    max_msg_size max_msg_timeout max_output_buffer_size max_output_buffer_timeout
    max_pub_waiting_size max_rdy_count max_req_timeout mem_queue_size min_disk_free
    min_output_buffer_timeout msg_timeout nsqlookupd_tcp_addresses output_buffer_timeout
    queue_scan_selection_count queue_scan_worker_pool_max retain_age retain_bytes segment_age
    segment_bytes snappy statsd_address statsd_exclude_ephemeral statsd_interval
    statsd_mem_stats statsd_prefix statsd_udp_packet_size sub_extend_must sync_every
    sync_timeout tcp_address tls_cert tls_client_auth_policy tls_key tls_min_version
    tls_required tls_root_ca_file topology_region topology_zone trace_rate worker_id
"""
_NSQLOOKUPD = """
    http_allowed_host http_secret_file inactive_producer_timeout tombstone_lifetime
"""
_NSQADMIN = """
    http_client_secret_file
    acl_email_header acl_groups_header acl_http_header admin_users allow_config_from_cidr
    base_path dev_static_dir graphite_url group_role history_retention http_client_tls_cert
    http_client_tls_insecure_skip_verify http_client_tls_key http_client_tls_root_ca_file
    lake login logout_url mask_field notification_http_endpoint
    nsqd_http_addresses nsqlookupd_http_addresses oidc_client_id oidc_client_secret_file
    oidc_groups_claim oidc_issuer oidc_redirect_url oidc_root_ca_file oidc_scopes poll_interval
    proxy_graphite read_only secure_cookie session_lifetime statsd_counter_format
    statsd_gauge_format trace_table trusted_proxy_cidr
"""
DAEMON_KEYS = frozenset((_SHARED + _NSQD + _NSQLOOKUPD + _NSQADMIN).split())
COMMAND_LINE = frozenset(
    PREFIX + name
    for name in (
        "COMPLETION_SECONDS",
        "CONTEXT",
        "KERNEL",
        "LAKE",
        "LOOKUPD_HTTP_ADDRESS",
        "NSQD_HTTP_ADDRESS",
        "NSQD_TCP_ADDRESS",
    )
)
_BUILD_AND_TESTS = frozenset(
    PREFIX + name for name in ("BUILD", "FUZZ_SECONDS", "MODEL_EXAMPLES", "SAMPLE_CONFIG")
)
PIPELINES = ("archive", "audit", "replay", "trace")

_KNOWN = frozenset(PREFIX + key.upper() for key in DAEMON_KEYS) | COMMAND_LINE | _BUILD_AND_TESTS
_KUBERNETES = re.compile(
    r"PENSTOCK_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK = re.compile(r"(tcp|udp|sctp)://")  # what Kubernetes puts into PENSTOCK_PORT


def check_names(own: Collection[str], environment: Mapping[str, str]) -> None:
    """For a daemon, which reads the names in `own`: raises ConfigError for a variable that nobody
    reads."""
    prefixes = tuple(prefix_of(table) for table in PIPELINES)
    for name in _strange(own, environment):
        if not name.startswith(prefixes) or nearest(name, own):
            raise ConfigError("environment", name, unknown("variable", name, own))


def check_table_names(
    table: str, others: Iterable[str], own: Collection[str], environment: Mapping[str, str]
) -> None:
    """The same for a pipeline, whose names begin with that of its table. People give tables names
    of their own, so a variable that begins otherwise, or as one of `others`, may be right."""
    prefixes = tuple(prefix_of(other) for other in {*PIPELINES, *others} - {table})
    for name in _strange(own, environment):
        if name.startswith(prefix_of(table)) and not name.startswith(prefixes):
            raise ConfigError("environment", name, unknown("variable", name, own))


def check_near_misses(own: Collection[str], environment: Mapping[str, str]) -> None:
    """For the command line, where people may name variables as they like (for secrets, say)."""
    for name in _strange(own, environment):
        if nearest(name, own):
            raise ConfigError("environment", name, unknown("variable", name, own))


def _strange(own: Collection[str], environment: Mapping[str, str]) -> list[str]:
    return [
        name
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
        and not (name in own or name in _KNOWN or name.startswith(PREFIX + "TEST_"))
        and not _is_of_kubernetes(name, value)
    ]


def prefix_of(table: str) -> str:
    return f"{PREFIX}{table}_".upper().replace("-", "_")


def nearest(name: str, names: Iterable[str], cutoff: float = NEAR) -> str:
    """The one of `names` that `name` is most like; empty when there is none. What all begin with
    counts for nothing."""
    by_rest = {one.removeprefix(PREFIX): one for one in names}
    found = difflib.get_close_matches(name.removeprefix(PREFIX), by_rest, 1, cutoff)
    return by_rest[found[0]] if found else ""


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """The rule that a name breaks. What it was set to may be a secret, so that is not shown."""
    near = nearest(name, names, 0.5)
    return f"there is no such {what}" + (f"; the nearest is {near}" if near else "")


def _is_of_kubernetes(name: str, value: str) -> bool:
    if _KUBERNETES.fullmatch(name):
        return True
    return name.endswith("_PORT") and _LINK.match(value) is not None
