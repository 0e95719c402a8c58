"""A message's way to one destination, with what it brings: headers, key and partition.

What a destination takes shows when it refuses. A Penstock topic that is not extended takes a key
and a trace id (`E_EXT_NOT_SUPPORT` for more), NSQ's own nsqd takes nothing beside the body
(`E_INVALID`: it does not know the command). Neither passes by itself, so such a refusal is the end
of the work, unless headers may be dropped; then it is said once, and only once is it tried.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from penstock.client import Message, Producer
from penstock.errors import PenstockError, ServerRefused
from penstock.tools.envelopes import KEY, carried

log = logging.getLogger("penstock.tools")

_TAKEN_ANYWHERE = frozenset({KEY, "##trace_id"})  # of a topic that is not extended


class Takes(IntEnum):
    NOTHING = 0
    KEY = 1
    ALL = 2


# What is left of it after a refusal of a publish with headers.
_LESS = {"E_EXT_NOT_SUPPORT": Takes.KEY, "E_INVALID": Takes.NOTHING}


class Unfit(PenstockError):
    """The destination will not take what messages bring, now or later."""


class Carrier:
    def __init__(
        self, producer: Producer, address: str, topic: str, *, drop_headers: bool, keep_place: bool
    ) -> None:
        """`keep_place`: each message goes into the partition of the number that it comes from."""
        self._producer = producer
        self._address = address
        self._topic = topic
        self._drop_headers = drop_headers
        self._keep_place = keep_place
        self._takes = Takes.ALL

    async def publish(self, message: Message, body: bytes) -> None:
        """Raises ClientError, Unfit."""
        partition = self._partition(message) if self._keep_place else None
        headers = carried(message)
        while True:
            sent = self._fitting(headers)
            try:
                await self._publish(body, sent, partition)
                return
            except ServerRefused as refusal:
                if partition is not None and refusal.code == "E_BAD_PARTITION":
                    raise Unfit(f"{refusal}: topic {self._topic} needs as many there") from refusal
                if not sent or refusal.code not in _LESS:
                    raise
                self._expect_less(refusal)

    async def _publish(
        self, body: bytes, headers: Mapping[str, Any], partition: int | None
    ) -> None:
        if headers:
            await self._producer.pub(self._topic, body, headers=headers, partition=partition)
        elif partition is not None:
            await self._producer.pub(self._topic, body, partition=partition)
        else:
            await self._producer.pub(self._topic, body)

    def _partition(self, message: Message) -> int:
        if message.partition is None:
            raise Unfit(f"{message.address} does not tell the partition of its messages")
        return message.partition

    def _fitting(self, headers: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._takes is Takes.ALL:
            return headers
        if self._takes is Takes.NOTHING:
            return {}
        return {name: headers[name] for name in headers if name in _TAKEN_ANYWHERE}

    def _expect_less(self, refusal: ServerRefused) -> None:
        """Several publishes may be refused for the same reason: only the first has news."""
        takes = _LESS[refusal.code]
        if not self._drop_headers:
            raise Unfit(
                f"{self._address} does not take the headers of messages to {self._topic} "
                f"({refusal.code}): extend the topic there, or give --drop-headers"
            ) from refusal
        if takes < self._takes:
            self._takes = takes
            left = "but for key and trace id" if takes is Takes.KEY else "and keys"
            log.warning("%s: headers %s are dropped from now on: %s", self._address, left, refusal)
