"""The client library: publish to and consume from any nsqd that speaks V2, NSQ's or ours.

`Producer` and `Consumer` live in an asyncio loop (asyncio's own or uvloop). Their modules open with
how they are used, `options` lists what they can be told, and every error they raise on purpose is a
`ClientError` (or a ConfigError or NameInvalid, for what the caller got wrong).
"""

from penstock.client.blocking import BlockingConsumer, BlockingMessage, BlockingProducer
from penstock.client.consumer import Consumer, Counts
from penstock.client.handling import Requeue
from penstock.client.message import Message
from penstock.client.options import ConnectionOptions, ConsumerOptions, ProducerOptions
from penstock.client.producer import Producer
from penstock.client.unique import new_unique_ids, unique_ids
from penstock.errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    MessageSettled,
    ProducerFull,
    PublishTimeout,
    ServerRefused,
)

__all__ = [
    "BlockingConsumer",
    "BlockingMessage",
    "BlockingProducer",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionOptions",
    "Consumer",
    "ConsumerOptions",
    "Counts",
    "Message",
    "MessageSettled",
    "Producer",
    "ProducerFull",
    "ProducerOptions",
    "PublishTimeout",
    "Requeue",
    "ServerRefused",
    "new_unique_ids",
    "unique_ids",
]
