"""`nsq_to_nsq`: publish the messages of topics to other nsqds.

A message is finished when its destination has said OK, and given back when it has not. JSON
messages may be filtered by a field, and cut down to some fields; what is not JSON is dropped then.

Headers, key and, where that is wanted, partition go along. What a destination takes shows when it
refuses. A Penstock topic that is not extended takes a key and a trace id (`E_EXT_NOT_SUPPORT` for
more), NSQ's own nsqd takes nothing beside the body (`E_INVALID`: it does not know the command).
Neither passes by itself, so such a refusal is the end of the work, unless headers may be dropped;
then it is said once, and only once is it tried.
"""

import contextlib
import json
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client import Message, Producer, Requeue
from penstock.client.publishing import To
from penstock.command.flags import Flag, Kind
from penstock.errors import ClientError, PenstockError, ServerRefused
from penstock.tools import utility
from penstock.tools.envelopes import KEY, as_text, carried
from penstock.tools.hostpool import MODES, HostPool, Status
from penstock.tools.output import WrongUse
from penstock.tools.utility import Stop, Values

log = logging.getLogger("penstock.tools")

PROGRAM = "nsq_to_nsq"

FLAGS = (
    *utility.COMMON,
    Flag("topic", Kind.STRINGS, (), "NSQ topic to read (may be repeated)"),
    Flag("channel", Kind.STRING, "nsq_to_nsq", "NSQ channel"),
    utility.IN_FLIGHT,
    Flag("destination-topic", Kind.STRING, "", "topic to publish to (default: the same)"),
    Flag("destination-nsqd-tcp-address", Kind.STRINGS, (), "nsqd to publish to (may be repeated)"),
    Flag("mode", Kind.STRING, "hostpool", "which destination: hostpool, epsilon-greedy or "
         "round-robin", choices=MODES),
    Flag("require-json-field", Kind.STRING, "", "only pass JSON messages that have this field"),
    Flag("require-json-value", Kind.STRING, "", "only pass those where it has this value"),
    Flag("whitelist-json-field", Kind.STRINGS, (), "pass only these fields (may be repeated)"),
    Flag("drop-headers", Kind.BOOL, False, "publish without headers where the destination takes "
         "none (default: end with an error)"),
    Flag("keep-partition", Kind.BOOL, False, "publish into the partition of the same number"),
    Flag("status-every", Kind.INT, 250, "log figures after this many messages (0: never)"),
    *utility.SOURCE,
    utility.PRODUCER_OPT,
)  # fmt: skip


def _check(values: Values) -> None:
    utility.need_names("topic", *values["topic"])
    if values["destination_topic"]:
        utility.need_names("topic", values["destination_topic"])
    utility.check_consumers(PROGRAM, values, envelope=True)
    if not values["destination_nsqd_tcp_address"]:
        raise WrongUse("--destination-nsqd-tcp-address required")
    if values["require_json_value"] and not values["require_json_field"]:
        raise WrongUse("--require-json-value needs --require-json-field")
    utility.check_producers(PROGRAM, values)


@dataclass
class Filter:
    """The filter of a body: the bytes to publish, or None to drop it."""

    field: str
    value: str
    kept: Sequence[str]  # fields; none: all

    def __call__(self, body: bytes) -> bytes | None:
        if not self.field and not self.kept:
            return body
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            log.warning("a message of %d bytes is not JSON: dropped", len(body))
            return None
        if not isinstance(document, dict) or (self.field and not self._passes(document)):
            return None
        if not self.kept:
            return body
        return as_text({name: document[name] for name in self.kept if name in document}).encode()

    def _passes(self, document: dict[str, Any]) -> bool:
        if self.field not in document:
            return False
        if not self.value:
            return True
        found = document[self.field]
        if isinstance(found, str):
            return found == self.value
        if isinstance(found, bool) or found is None:
            return json.dumps(found) == self.value
        try:
            return bool(found == float(self.value))
        except ValueError:
            return False


# --- headers and partitions ---


# What may still be sent after a refusal of a publish with headers.
_LESS = {"E_EXT_NOT_SUPPORT": {KEY, "##trace_id"}, "E_INVALID": set[str]()}


class Unfit(PenstockError):
    """The destination will never accept these messages."""


@dataclass
class Carrier:
    producer: Producer
    address: str
    topic: str
    drop_headers: bool  # that it does not take
    keep_partition: bool  # a message keeps the number of its partition
    taken: set[str] | None = None  # headers; None: all

    async def publish(self, message: Message, body: bytes) -> None:
        """Raises ClientError, Unfit."""
        to: To = {}
        if self.keep_partition:
            if message.partition is None:
                raise Unfit(f"{message.address} does not tell the partition of its messages")
            to["partition"] = message.partition
        headers = carried(message)
        while True:
            if self.taken is not None:
                headers = {name: headers[name] for name in headers if name in self.taken}
            if headers:
                to["headers"] = headers
            try:
                await self.producer.pub(self.topic, body, **to)
                return
            except ServerRefused as refusal:
                if self.keep_partition and refusal.code == "E_BAD_PARTITION":
                    raise Unfit(f"{refusal}: topic {self.topic} needs as many there") from refusal
                if not to.pop("headers", None) or refusal.code not in _LESS:
                    raise
                self._expect_less(refusal)

    def _expect_less(self, refusal: ServerRefused) -> None:
        """Several publishes may be refused for the same reason: only the first has news."""
        taken = _LESS[refusal.code]
        if not self.drop_headers:
            raise Unfit(
                f"{self.address} does not take the headers of messages to {self.topic} "
                f"({refusal.code}): extend the topic there, or give --drop-headers"
            ) from refusal
        if self.taken is None or taken < self.taken:
            self.taken = taken
            left = "but for key and trace id" if taken else "and keys"
            log.warning("%s: headers %s are dropped from now on: %s", self.address, left, refusal)


# --- forwarding ---


@dataclass
class Forwarder:
    """Ends when a destination can never accept the messages."""

    carriers: dict[str, Carrier]
    pool: HostPool
    filter: Filter
    status: Status
    stop: Stop

    async def __call__(self, message: Message) -> None:
        body = self.filter(message.body)
        if not body:
            return
        host = self.pool.take()
        began_ns = time.monotonic_ns()
        try:
            await self.carriers[host.address].publish(message, body)
        except Unfit as error:
            self.stop.fail(error)
            raise Requeue(0, backoff=False) from error
        except ClientError as error:
            self.pool.failed(host)
            log.error("%r goes back: %s", message, error)
            raise Requeue from error
        took_ns = time.monotonic_ns() - began_ns
        self.pool.succeeded(host, took_ns)
        self.status.note(host.address, took_ns)


async def _main(values: Values, stop: Stop) -> None:
    addresses = list(dict.fromkeys(values["destination_nsqd_tcp_address"]))
    pool = HostPool(addresses, values["mode"], time.monotonic_ns, random.Random())
    chosen = Filter(
        values["require_json_field"], values["require_json_value"], values["whitelist_json_field"]
    )
    status = Status(values["status_every"])
    async with contextlib.AsyncExitStack() as stack:
        producers = {
            address: await stack.enter_async_context(
                Producer(address, connect_required=False, **values["producer_changes"])
            )
            for address in addresses
        }
        work = []
        for topic in values["topic"]:
            to = values["destination_topic"] or topic
            carriers = {
                at: Carrier(producer, at, to, values["drop_headers"], values["keep_partition"])
                for at, producer in producers.items()
            }
            forwarder = Forwarder(carriers, pool, chosen, status, stop)
            work.append((utility.consumer(topic, values), forwarder))
        await utility.consume_until(stop, work, values["max_in_flight"])


main = utility.entry(PROGRAM, FLAGS, _check, _main)
