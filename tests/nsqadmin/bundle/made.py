"""Bundles that are made for tests: a healthy installation of three nsqds and two nsqlookupds, to be
changed in one file."""

import copy
import json
from pathlib import Path
from typing import Any

from penstock.nsqadmin.bundle.files import About, Bundle, Failure, Manifest, Member, Spool

METRICS = 'nsqd_info{version="0.1.0"} 1\nprocess_open_fds 30\n'
_CONFIG = {
    "durability": "disk", "msg_timeout": 60_000_000_000, "max_msg_size": 1 << 20,
    "min_disk_free": 1 << 28, "nsqlookupd_tcp_addresses": [], "log_level": 3,
}  # fmt: skip


class Made:
    """`files` by name: documents, or text. Change them, then `bundle()`."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.failures: list[tuple[str, str, str]] = []
        self.members: list[Member] = []
        rows = [
            {**info(number), "tcp_port": 4150, "topics": ["orders"], "tombstones": [False]}
            for number in (1, 2, 3)
        ]
        for number in (1, 2, 3):
            folder = f"nsqd/{number}"
            self.members.append(Member(folder, "nsqd", f"10.0.0.{number}:4151"))
            self.files |= {
                f"{folder}/ping.txt": "200 OK",
                f"{folder}/info.json": info(number),
                f"{folder}/config.json": {**copy.deepcopy(_CONFIG), "id": number},
                f"{folder}/stats-1.json": stats(1000),
                f"{folder}/stats-2.json": stats(2000),
                f"{folder}/metrics.txt": METRICS,
                f"{folder}/facts.json": {"sample_times_s": [100.0, 105.0],
                                        "clock_offset_s": [-0.1, 0.9]},
            }  # fmt: skip
        for number in (1, 2):
            folder = f"nsqlookupd/{number}"
            self.members.append(Member(folder, "nsqlookupd", f"10.0.1.{number}:4161"))
            self.files |= {
                f"{folder}/ping.txt": "200 OK",
                f"{folder}/info.json": {"version": "0.1.0"},
                f"{folder}/topics.json": {"topics": ["orders"]},
                f"{folder}/nodes.json": {"producers": copy.deepcopy(rows)},
                f"{folder}/facts.json": {"clock_offset_s": [-0.1, 0.9]},
            }
        self.files["machine/limits.json"] = {
            "memory": {"MemTotal": 10**9, "MemAvailable": 5 * 10**8},
            "cgroup": {"memory.max": "max", "memory.current": "1000"},
        }

    def channel(self, sample: int, node: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = self.topic(sample, node)["channels"][0]
        return found

    def topic(self, sample: int, node: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = self.files[f"nsqd/{node}/stats-{sample}.json"]["topics"][0]
        return found

    def write(self, path: Path) -> Path:
        spool = Spool(path)
        try:
            for name, holds in self.files.items():
                spool.put(name, _bytes(holds))
            spool.manifest.daemons += self.members
            for failure in self.failures:
                spool.fail(*failure)
            spool.finish(About(made="now", who="ann"))
        finally:
            spool.close()
        return path

    def bundle(self) -> Bundle:
        """As it would be read, without a zip."""
        failures = [Failure(*one) for one in self.failures]
        held = {name: _bytes(holds) for name, holds in self.files.items()}
        return Bundle(Manifest(daemons=self.members, failures=failures), held)


def _bytes(holds: Any) -> bytes:
    return holds.encode() if isinstance(holds, str) else json.dumps(holds).encode()


def info(number: int) -> dict[str, Any]:
    return {"version": "0.1.0", "hostname": f"box-{number}", "http_port": 4151,
            "broadcast_address": f"10.0.0.{number}"}  # fmt: skip


def stats(messages: int) -> dict[str, Any]:
    """A channel with a consumer that keeps up."""
    channel = {
        "channel_name": "billing", "depth": 3, "in_flight_count": 2, "deferred_count": 0,
        "message_count": messages, "client_count": 1, "timeout_count": 0, "requeue_count": 0,
        "oldest_age_seconds": 0.2, "dead_letter_count": 0,
        "clients": [{"client_id": "till", "hostname": "box-9", "remote_address": "10.9.9.9:5000"}],
    }  # fmt: skip
    topic = {"topic_name": "orders", "depth": 0, "message_count": messages, "channels": [channel]}
    disk = {"free_bytes": 90 * 10**9, "size_bytes": 100 * 10**9, "sync_slowest_seconds": 0.004}
    return {"health": "OK", "version": "0.1.0", "start_time": 7, "topics": [topic], "disk": disk}
