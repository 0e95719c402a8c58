"""A real nsqd of ours, started with an official nsqd's flags on that one's data path."""

from pathlib import Path

from penstock.log.disk import OsDisk
from penstock.takeover.diskqueue import Record
from takeover.olddata import record, records, write_old_path

from .daemon import Daemon

OFFICIAL_FLAGS = ("--mem-queue-size=10000", "--max-bytes-per-file=104857600", "--sync-every=2500")


def consumed(daemon: Daemon, topic: str, channel: str, count: int) -> list[Record]:
    """All of a channel, finished; attempts as they were before."""
    with daemon.client() as client:
        client.sub(topic, channel)
        client.rdy(2500)
        found = []
        while len(found) < count:
            message = client.message()
            assert message is not None, f"{len(found)} of {count}"
            client.fin(message.id)
            found.append(
                Record(
                    message.timestamp_ns, message.attempts - 1, int(message.id, 16), message.body
                )
            )
        assert client.message(0.2) is None
        client.rdy(0)
        client.settle()
    return found


def test_the_same_flags_and_the_same_path(tmp_path: Path) -> None:
    path = tmp_path / "data"
    retried = [record(number, attempts=number % 4) for number in range(500, 600)]
    queues = {
        "orders": records(range(1000, 1010)),
        "orders:mail": [*records(range(500)), *retried],
        "orders:stock": records(range(300, 500)),
        "alone": records([1, 2]),
        "paused:c": records([5]),
    }
    write_old_path(OsDisk(), str(path), queues, paused=["paused:c"], file_bytes_max=5000)
    with Daemon(path, *OFFICIAL_FLAGS) as daemon:
        assert "613 messages of nsqd are taken over" in daemon.stderr()
        assert daemon.channel_stats("paused", "c")["paused"]
        assert daemon.channel_stats("orders", "mail")["depth"] == 610
        assert daemon.topic_stats("alone")["depth"] == 2
        mail = consumed(daemon, "orders", "mail", 610)
        assert mail == [*queues["orders:mail"], *queues["orders"]]
        daemon.kill()
        daemon.start()
        assert "taken over" not in daemon.stderr()
        stock = consumed(daemon, "orders", "stock", 210)
        assert stock == [*queues["orders:stock"], *queues["orders"]]
        assert daemon.channel_stats("orders", "mail")["depth"] == 0
        assert consumed(daemon, "alone", "first", 2) == queues["alone"]
        with daemon.client() as client:
            client.pub("orders", b"new")
        assert [one.body for one in consumed(daemon, "orders", "mail", 1)] == [b"new"]
        assert daemon.stop() == 0
