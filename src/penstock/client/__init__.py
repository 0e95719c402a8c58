"""The client library: publish to and consume from any nsqd that speaks V2, NSQ's or ours.

`IdempotentProducer` publishes without duplicates, and `Admin` makes, changes and removes topics and
channels; both over HTTP, the former to our nsqd only.

`Producer` and `Consumer` live in an asyncio loop (asyncio's own or uvloop). Their modules open with
how they are used, `options` lists what they can be told, and every error they raise on purpose is a
`ClientError` (or a ConfigError or NameInvalid, for what the caller got wrong).
"""

from penstock.client.admin import Admin as Admin
from penstock.client.blocking import BlockingConsumer as BlockingConsumer
from penstock.client.blocking import BlockingIdempotentProducer as BlockingIdempotentProducer
from penstock.client.blocking import BlockingProducer as BlockingProducer
from penstock.client.consumer import Consumer as Consumer
from penstock.client.consumer import Counts as Counts
from penstock.client.handlers import Action as Action
from penstock.client.handlers import Handler as Handler
from penstock.client.handlers import HandlerTimeout as HandlerTimeout
from penstock.client.handlers import OnError as OnError
from penstock.client.handlers import Requeue as Requeue
from penstock.client.idempotent import IdempotentProducer as IdempotentProducer
from penstock.client.ids import guid_factory as guid_factory
from penstock.client.ids import id_pool as id_pool
from penstock.client.ids import new_unique_ids as new_unique_ids
from penstock.client.ids import unique_ids as unique_ids
from penstock.client.message import ConsumeMiddleware as ConsumeMiddleware
from penstock.client.message import Message as Message
from penstock.client.middleware import Next as Next
from penstock.client.numbering import EpochFile as EpochFile
from penstock.client.options import ConnectionOptions as ConnectionOptions
from penstock.client.options import ConsumerOptions as ConsumerOptions
from penstock.client.options import IdempotentOptions as IdempotentOptions
from penstock.client.options import ProducerOptions as ProducerOptions
from penstock.client.producer import OutcomeUnknown as OutcomeUnknown
from penstock.client.producer import Producer as Producer
from penstock.client.publishing import AlreadyStarted as AlreadyStarted
from penstock.client.publishing import NotStarted as NotStarted
from penstock.client.publishing import Outgoing as Outgoing
from penstock.client.publishing import Published as Published
from penstock.client.publishing import PublishMiddleware as PublishMiddleware
from penstock.client.topic_publisher import PublishCounts as PublishCounts
from penstock.errors import BrokerRefused as BrokerRefused
from penstock.errors import ClientClosed as ClientClosed
from penstock.errors import ClientError as ClientError
from penstock.errors import ConnectFailed as ConnectFailed
from penstock.errors import ConnectionLost as ConnectionLost
from penstock.errors import IdBackwards as IdBackwards
from penstock.errors import IdNotMade as IdNotMade
from penstock.errors import IdPoolClosed as IdPoolClosed
from penstock.errors import IdPoolEmpty as IdPoolEmpty
from penstock.errors import MessageSettled as MessageSettled
from penstock.errors import ProducerFull as ProducerFull
from penstock.errors import ProducerStopped as ProducerStopped
from penstock.errors import PublishFenced as PublishFenced
from penstock.errors import PublishGap as PublishGap
from penstock.errors import PublishRefused as PublishRefused
from penstock.errors import PublishTimeout as PublishTimeout
from penstock.errors import PublishUncertain as PublishUncertain
from penstock.errors import SequenceExpired as SequenceExpired
from penstock.errors import ServerRefused as ServerRefused
from penstock.errors import TimeBackwards as TimeBackwards
from penstock.ids.factory import GuidFactory as GuidFactory
from penstock.ids.factory import IdPool as IdPool
