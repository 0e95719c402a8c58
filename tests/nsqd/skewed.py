"""Topics with several partitions in a running nsqd, nine of ten messages in one of them."""

from collections.abc import Mapping, Sequence

from penstock.broker.partition.appends import Content, Stored, publish_located

from .world import Running, eventually

HEAVY = 1  # the partition that has them
COUNTS = (2, 36, 2)


def skewed(nsqd: Running, topic: str, counts: Sequence[int] = COUNTS) -> None:
    """A message's body says where it is: `1:35`."""
    nsqd.call(lambda: nsqd.daemon.broker.topic(topic, len(counts)))
    for partition, count in enumerate(counts):
        bodies = [b"%d:%d" % (partition, number) for number in range(count)]
        put(nsqd, topic, partition, bodies)


def lagging(nsqd: Running) -> None:
    """Of topic `t`, channel `slow` has nothing of the heavy partition, `quick` has all; topic `one`
    has one partition."""
    skewed(nsqd, "t")
    for channel in ("quick", "slow"):
        for verb in ("create", "empty"):
            target = f"/channel/{verb}?topic=t&channel={channel}"
            assert nsqd.request("POST", target).status == 200
    back = f"/channel/setoffset?topic=t&channel=slow&partition={HEAVY}"
    assert nsqd.request("POST", back, b"earliest").status == 200
    assert nsqd.request("POST", "/topic/create?topic=one").status == 200


def put(
    nsqd: Running,
    topic: str,
    partition: int,
    bodies: Sequence[bytes],
    sections: Mapping[int, int | bytes] | None = None,
) -> None:
    """Messages into this partition, in one batch; stored when this returns."""
    outcomes: list[object] = []
    letters = [Content(body, dict(sections or {})) for body in bodies]

    def publish() -> None:
        group = nsqd.daemon.broker.topics[topic].leader(partition).group
        publish_located(
            group,
            letters,
            0,
            lambda answer: outcomes.append(None if isinstance(answer, Stored) else answer),
        )
        nsqd.daemon.node.turn.soon()

    if letters:
        nsqd.call(publish)
        eventually(lambda: outcomes == [None])
