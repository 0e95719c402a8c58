"""nsqd's own state of a message that looks stuck or lost in the trace.

The trace may lack the last events before a kill, and it ends somewhere, while the channel's journal
is the truth, and of now. Nothing is changed by asking: a dry run of `/channel/setoffset` says where
the channel is, and how many messages below an offset are not finished, so two of them, a message
apart, tell whether that one is among them. While they are asked others may be finished; then the
first is asked again, and where the channel does not hold still nothing is said.
"""

from enum import Enum

from penstock.errors import FetchFailed
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Move
from penstock.spark.brokerapi import BrokerApi

_TRIES = 5


class Answer(Enum):
    DONE = "finished, or given up by an operator"
    HELD = "in flight, requeued or delayed"
    AHEAD = "the channel has not come to it"
    GONE = "deleted from the log"
    UNKNOWN = "nobody knows"


_OUTSIDE = {410: Answer.GONE, 416: Answer.AHEAD}  # the offset, of the log


class Asker:
    """For one topic. An nsqd that does not answer, or lacks the topic or channel, is named in
    `trouble`, and not asked again."""

    def __init__(self, api: BrokerApi, topic: str) -> None:
        self._api = api
        self._topic = topic
        self.trouble = ""

    def __call__(self, channel: str, partition: int, offset: int, message_id: str) -> Answer:
        if self.trouble:
            return Answer.UNKNOWN
        try:
            return self._answer(channel, partition, offset, message_id)
        except FetchFailed as error:
            if error.status in _OUTSIDE:
                return _OUTSIDE[error.status]
            self.trouble = str(error)
            return Answer.UNKNOWN

    def _answer(self, channel: str, partition: int, offset: int, message_id: str) -> Answer:
        self._api.positions([self._topic])  # says who leads the partition
        api = self._api.at(self._topic, partition)

        def move(to: int) -> Move:
            return api.ask(
                calls.move(self._topic, channel, f"offset:{to}", partition, dry_run=True)
            )

        message = api.ask(calls.message(self._topic, "offset", offset, partition))
        if str(message["id"]) != message_id:
            return Answer.GONE  # the topic was made anew
        for _ in range(_TRIES):
            below = move(offset)
            behind = move(offset + 1)
            if move(offset) != below:
                continue
            if behind.skipped:
                return Answer.AHEAD
            return Answer.HELD if behind.given_up > below.given_up else Answer.DONE
        return Answer.UNKNOWN
