"""The client library: publish to and consume from any nsqd that speaks V2, NSQ's or ours.

`IdempotentProducer` publishes without duplicates, and `Admin` makes, changes and removes topics and
channels; both over HTTP, the former to our nsqd only.

`Producer` and `Consumer` live in an asyncio loop (asyncio's own or uvloop). Their modules open with
how they are used, `options` lists what they can be told, and every error they raise on purpose is a
`ClientError` (or a ConfigError or NameInvalid, for what the caller got wrong).
"""

from penstock.client.admin import Admin
from penstock.client.blocking import (
    BlockingConsumer,
    BlockingIdempotentProducer,
    BlockingMessage,
    BlockingProducer,
)
from penstock.client.consumer import Consumer, Counts
from penstock.client.handlers import Action, Handler, HandlerTimeout, OnError, Requeue
from penstock.client.idempotent import IdempotentProducer
from penstock.client.ids import guid_factory, id_pool, new_unique_ids, unique_ids
from penstock.client.lane import Counts as PublishCounts
from penstock.client.message import ConsumeMiddleware, Message
from penstock.client.middleware import Next
from penstock.client.numbering import EpochFile
from penstock.client.options import (
    ConnectionOptions,
    ConsumerOptions,
    IdempotentOptions,
    ProducerOptions,
)
from penstock.client.producer import OutcomeUnknown, Producer
from penstock.client.publishing import NotStarted, Outgoing, Published, PublishMiddleware
from penstock.errors import (
    BrokerRefused,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    IdBackwards,
    IdNotMade,
    IdPoolClosed,
    IdPoolEmpty,
    MessageSettled,
    ProducerFull,
    ProducerStopped,
    PublishFenced,
    PublishGap,
    PublishRefused,
    PublishTimeout,
    PublishUncertain,
    SequenceExpired,
    ServerRefused,
    TimeBackwards,
)
from penstock.ids.factory import GuidFactory, IdPool

__all__ = [
    "Action",
    "Admin",
    "BlockingConsumer",
    "BlockingIdempotentProducer",
    "BlockingMessage",
    "BlockingProducer",
    "BrokerRefused",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectionOptions",
    "ConsumeMiddleware",
    "Consumer",
    "ConsumerOptions",
    "Counts",
    "EpochFile",
    "GuidFactory",
    "Handler",
    "HandlerTimeout",
    "IdBackwards",
    "IdNotMade",
    "IdPool",
    "IdPoolClosed",
    "IdPoolEmpty",
    "IdempotentOptions",
    "IdempotentProducer",
    "Message",
    "MessageSettled",
    "Next",
    "NotStarted",
    "OnError",
    "OutcomeUnknown",
    "Outgoing",
    "Producer",
    "ProducerFull",
    "ProducerOptions",
    "ProducerStopped",
    "PublishCounts",
    "PublishFenced",
    "PublishGap",
    "PublishMiddleware",
    "PublishRefused",
    "PublishTimeout",
    "PublishUncertain",
    "Published",
    "Requeue",
    "SequenceExpired",
    "ServerRefused",
    "TimeBackwards",
    "guid_factory",
    "id_pool",
    "new_unique_ids",
    "unique_ids",
]
