"""What the flags of an nsqd mean for its parts: broker, protocol, sessions, statsd, lookups."""

from __future__ import annotations

import os
from pathlib import Path

from penstock import __version__, limits
from penstock.broker.options import BrokerOptions
from penstock.nsqd.ground import Identity
from penstock.nsqd.options import Options
from penstock.nsqd.statsd import StatsdOptions, expand_prefix
from penstock.wire.identify import Offer, Settings


def data_path(options: Options) -> Path:
    return Path(options.data_path or os.curdir).absolute()


def broker_options(options: Options) -> BrokerOptions:
    return BrokerOptions(
        node_id=options.node_id,
        durability="os" if options.durability == "os" else "disk",
        segment_bytes_max=options.segment_bytes,
        segment_age_max_ns=options.segment_age_ns,
        retain_age_ns=options.retain_age_ns,
        retain_bytes=options.retain_bytes,
        default_partitions=options.default_partitions,
        max_depth=options.max_depth,
        max_age_ns=options.max_age_ns,
        trace_rate=options.trace_rate,
        waiting_bytes_max=options.max_pub_waiting_size,
        auto_ack_attempts=options.ack_retry_cnt,
        auto_ack_age_ns=options.ack_old_than_time_ns,
        idle_topic_delete_ns=options.idle_topic_delete_ns,
        idle_channel_delete_ns=options.idle_channel_delete_ns,
        idle_delete_backlog=options.idle_delete_backlog,
        sync_every_count=options.sync_every,
        sync_timeout_ns=options.sync_timeout_ns,
        disk_free_bytes_min=options.min_disk_free,
        mem_queue_size=options.mem_queue_size,
        message_timeout_max_ns=options.max_msg_timeout_ns,
        latency_quantiles=options.e2e_processing_latency_percentile,
        latency_window_ns=options.e2e_processing_latency_window_time_ns,
    )


def make_offer(options: Options) -> Offer:
    return Offer(
        version=__version__,
        rdy_count_max=options.max_rdy_count,
        heartbeat_max_ns=options.max_heartbeat_interval_ns,
        output_timeout_min_ns=options.min_output_buffer_timeout_ns,
        output_timeout_max_ns=options.max_output_buffer_timeout_ns,
        output_bytes_max=options.max_output_buffer_size,
        message_timeout_max_ns=options.max_msg_timeout_ns,
        deflate_level_max=options.max_deflate_level,
        topology_region=options.topology_region,
        topology_zone=options.topology_zone,
        tls=bool(options.tls_cert),
        snappy=options.snappy,
        deflate=options.deflate,
        auth_required=bool(options.auth_http_address),
    )


def default_settings(options: Options) -> Settings:
    """What holds for a client that has not identified itself."""
    return Settings(
        client_id="",
        hostname="",
        user_agent="",
        heartbeat_ns=limits.HEARTBEAT_NS,
        output_bytes=limits.OUTPUT_BUFFER_BYTES,
        output_timeout_ns=options.output_buffer_timeout_ns,
        sample_rate=0,
        message_timeout_ns=options.msg_timeout_ns,
        deflate_level=min(6, options.max_deflate_level),
    )


def statsd_options(options: Options, http_port: int) -> StatsdOptions:
    return StatsdOptions(
        address=options.statsd_address,
        interval_ns=options.statsd_interval_ns,
        prefix=expand_prefix(options.statsd_prefix, options.broadcast_address, http_port),
        packet_bytes=options.statsd_udp_packet_size,
        memory=options.statsd_mem_stats,
        exclude_ephemeral=options.statsd_exclude_ephemeral,
    )


def lookup_identity(options: Options, identity: Identity) -> dict[str, str | int]:
    """What an nsqlookupd hears of this nsqd."""
    return {
        "version": __version__,
        "tcp_port": identity.tcp_port,
        "http_port": identity.http_port or -1,  # without HTTP: nsqlookupd takes no 0
        "hostname": identity.hostname,
        "broadcast_address": options.broadcast_address,
        "topology_zone": options.topology_zone,
        "topology_region": options.topology_region,
        "partitions": True,  # it names them to an nsqlookupd that knows them
    }
