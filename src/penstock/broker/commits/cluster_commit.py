"""A commit of stages into topics of a cluster, whose partitions have leaders on any node.

The stages wait on the node that their writer named. Their batches go to the leaders as those of an
idempotent producer, which stands for the version of the app, so a batch is stored once, however
often it is sent: after a change of leader, after a lost answer, and when the whole commit is
repeated.

    producer id     of the app and version // 65,536
    producer epoch  version % 65,536
    sequence        of the partition's messages, in the order of the commit's stages

    check:  every stage is read once, complete and valid
    store:  slice by slice, each answered by its leader before the next one is sent
    record: `done`, the last version of the app
    clean:  the stages are removed

It is no single step: consumers may see some batches before the others. A partition without a leader
is waited for; after COMMIT_LEADER_NS the commit is refused as unfinished, and goes on when it is
asked for again. If this node is lost with its stages, the writer stages the version again, at any
node: what is stored already is not stored again, if each partition gets the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.commits.apps import Ref, Stage
from penstock.broker.commits.blocks import put_in_place
from penstock.broker.commits.commit import CommitRun, Steps
from penstock.broker.partition.idempotent import Stamp
from penstock.errors import CommitUnfinished, Refused
from penstock.replication.side_frames import Ending

if TYPE_CHECKING:
    from penstock.broker.replicas.forwarding import ForwardAnswer

_EPOCHS = 1 << 16


class ClusterCommitRun(CommitRun):
    def _commit(self, refs: list[Ref]) -> Steps:
        chosen = self._chosen(refs)
        for (topic, _), stages in chosen.items():
            if not self._topics[topic].replicated:
                raise Refused(f"topic {topic} is of this node alone, others are of the cluster")
            self._pin(stages)
        yield from self._check()
        for (topic, partition), stages in chosen.items():
            yield from self._store_part(topic, partition, stages)
        self.file.messages = sum(stage.head.count for stage in self._pinned)
        self.decided = True
        yield from self._note_done()  # written or not: a repeat would store nothing again
        self.shown = True
        self._commits.changed(self)
        yield from self._remove([stage.file_name for stage in self._pinned])

    def _store_part(self, topic: str, partition: int, stages: list[Stage]) -> Steps:
        id, epoch = producer_of(self.file.app, self.file.version)
        sequence = 0
        for stage in stages:
            position, at_end = stage.body_at, False
            while not at_end:
                job = yield from self._read(stage.path, position)
                batches = []
                for staged in job.batches:
                    batch = bytearray(staged.data)
                    put_in_place(batch, 0, 0, 0, 0, 0, Stamp(id, epoch, sequence))
                    batches.append(bytes(batch))
                    sequence += staged.messages
                yield from self._send(topic, partition, batches)
                position, at_end = job.next_position, job.at_end

    def _send(self, topic: str, partition: int, batches: Sequence[bytes]) -> Steps:
        """Until the partition has them, at whichever node leads it."""
        clock, host = self._context.clock, self._context.replica_host
        if host is None:
            raise Refused("this node is in no cluster")
        deadline_ns, forwarding = clock.mono_ns() + limits.COMMIT_LEADER_NS, host.forwarding
        while batches:
            led = forwarding.leader_of(topic, partition)
            answers: dict[int, ForwardAnswer] = {}
            if led is not None:
                for index, batch in enumerate(batches):
                    forwarding.send(led, batch, partial(self._answered, answers, index))
                while len(answers) < len(batches) and not self.stops:
                    yield
            stored = 0
            while stored in answers and answers[stored].ending is Ending.STORED:
                stored += 1
            # Later ones may be refused for want of those before them, or of room behind them.
            if not stored and 0 in answers and answers[0].ending is Ending.REFUSED:
                raise Refused(f"topic {topic}/{partition}: {answers[0].reason}")
            batches = batches[stored:]
            if batches and (self.stops or clock.mono_ns() >= deadline_ns):
                text = f"commit {self.file.version} of {self.file.app} waits for a leader of "
                raise CommitUnfinished(self._directory, f"{text}{topic}/{partition}")
            if batches and not stored:
                yield  # about a second: `Commits.housekeeping`

    def _answered(
        self, answers: dict[int, ForwardAnswer], index: int, answer: ForwardAnswer
    ) -> None:
        answers[index] = answer
        self.advance()


def producer_of(app: str, version: int) -> tuple[int, int]:
    """Id and epoch of the idempotent producer that represents a version of an app."""
    digest = sha256(f"{app}\0{version // _EPOCHS}".encode()).digest()
    return int.from_bytes(digest[:8], "little") | 1, version % _EPOCHS
