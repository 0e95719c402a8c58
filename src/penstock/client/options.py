"""The options of producers and consumers. All times are seconds.

`Producer(..., **changes)` and `Consumer(..., **changes)` take these fields as keywords, or a whole
object as `options=`. A wrong value or an unknown name is a ConfigError that says what is allowed.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict, TypeVar

from penstock import __version__, limits
from penstock.client.bodies import Serializer, to_json
from penstock.client.framing import is_within
from penstock.client.message import ConsumeMiddleware
from penstock.client.publishing import PublishMiddleware
from penstock.command.environment import nearest
from penstock.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """For every client."""

    user_agent: str = f"penstock/{__version__}"
    tls: ssl.SSLContext | bool | None = None  # True: the system's authorities
    connect_timeout_s: float = 5.0  # of one attempt, greeting included
    connect_required: bool = True  # entering fails when no given address can be reached
    stop_timeout_s: float = 10.0  # how long closing waits for answers, or for messages in hand
    lookup_interval_s: float = 60.0  # between two rounds over the lookupds
    lookup_jitter: float = 0.3  # share of the interval that the first round may be late
    lookup_timeout_s: float = 5.0
    lookup_tls: ssl.SSLContext | None = None
    lookup_headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(ClientOptions):
    """For every connection to an nsqd."""

    client_id: str = ""  # "": the host's short name
    hostname: str = ""  # "": the host's name
    heartbeat_s: float = 30.0  # 1 to 60
    tls_server_name: str = ""  # whose certificate is asked for; "": the address's host
    snappy: bool = False  # asked for; without it when nsqd does not offer it
    deflate: bool = False
    deflate_level: int = 6
    auth_secret: str = field(default="", repr=False)
    topology_region: str = ""
    topology_zone: str = ""
    reconnect_delay_s: float = 0.1  # after the first failure; doubles with each, with jitter
    reconnect_delay_max_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class PublishOptions(ClientOptions):
    """For both producers."""

    publish_timeout_s: float = 30.0  # waiting for a connection, attempts and pauses, together
    serializer: Serializer = to_json  # of bodies that are neither bytes nor text
    middleware: Sequence[PublishMiddleware] = ()  # around each publish
    pending_count_max: int = limits.CLIENT_PENDING_COUNT_MAX  # then publish_nowait refuses
    pending_bytes_max: int = limits.CLIENT_PENDING_BYTES_MAX


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ConnectionOptions, PublishOptions):
    unique_ids: bool = False  # each message gets a header UNIQ_KEY; topics need headers for it
    retry: bool = False  # what was unanswered when a connection ended is sent again (duplicates!)


@dataclass(frozen=True, kw_only=True)
class IdempotentOptions(PublishOptions):
    """For an IdempotentProducer, which uses HTTP."""

    http_secret: str = field(default="", repr=False)  # where nsqd has an --http-secret-file
    request_timeout_s: float = 10.0  # one attempt
    retry_delay_s: float = 0.1  # after the first failed attempt; doubles with each, with jitter
    retry_delay_max_s: float = 3.0
    batch_count_max: int = 1000  # messages that go out together, at most
    batch_bytes_max: int = limits.MIB  # and their bytes
    requests_max: int = 32  # at a time, over all topics; one topic has one


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ConnectionOptions):
    max_in_flight: int = 200  # over all connections
    message_timeout_s: float = 0.0  # 0: nsqd's own; else 1 to 900
    sample_rate: int = 0  # percent of the messages; 0: all
    envelope: bool = False  # messages bring their partition, and headers or key where they have any
    # of a topic with headers; on others they mean nothing
    headers: bool = False  # messages bring theirs; nsqd refuses it on topics without
    desired_tag: str = ""  # messages that name this tag are for consumers like this one
    ext_filter: Mapping[str, Any] | None = None  # what does not pass is finished by nsqd
    output_buffer_bytes: int = 0  # 0: nsqd's own; -1: unbuffered
    output_buffer_timeout_s: float = 0.0  # 0: nsqd's own; -1: none
    auto_touch: bool = False  # messages in our hands are touched before they time out
    middleware: Sequence[ConsumeMiddleware] = ()  # in `run`: around the handler
    max_attempts: int = 0  # in `run`: give up at the failure of this one; 0: never
    requeue_delay_s: float = 90.0  # in `run`, after an exception: times the attempts
    requeue_delay_max_s: float = 900.0
    backoff_failures: int = 5  # so many messages fail, and fewer are finished meanwhile: back off
    backoff_s: float = 1.0  # the n-th pause in a row is this times 2**n
    backoff_max_s: float = 120.0  # 0: no back-off
    low_rdy_idle_s: float = 10.0  # fewer in flight than connections: an idle one passes its turn on
    low_rdy_hold_s: float = 30.0  # and a busy one after this long


# The same fields as keywords: a type checker refuses a misspelt one, or one of a wrong type. A test
# holds the two against each other.


class ClientKeywords(TypedDict, total=False):
    user_agent: str
    tls: ssl.SSLContext | bool | None
    connect_timeout_s: float
    connect_required: bool
    stop_timeout_s: float
    lookup_interval_s: float
    lookup_jitter: float
    lookup_timeout_s: float
    lookup_tls: ssl.SSLContext | None
    lookup_headers: Mapping[str, str]


class ConnectionKeywords(ClientKeywords, total=False):
    client_id: str
    hostname: str
    heartbeat_s: float
    tls_server_name: str
    snappy: bool
    deflate: bool
    deflate_level: int
    auth_secret: str
    topology_region: str
    topology_zone: str
    reconnect_delay_s: float
    reconnect_delay_max_s: float


class PublishKeywords(ClientKeywords, total=False):
    publish_timeout_s: float
    serializer: Serializer
    middleware: Sequence[PublishMiddleware]
    pending_count_max: int
    pending_bytes_max: int


class ProducerKeywords(ConnectionKeywords, PublishKeywords, total=False):
    unique_ids: bool
    retry: bool


class IdempotentKeywords(PublishKeywords, total=False):
    http_secret: str
    request_timeout_s: float
    retry_delay_s: float
    retry_delay_max_s: float
    batch_count_max: int
    batch_bytes_max: int
    requests_max: int


class ConsumerKeywords(ConnectionKeywords, total=False):
    max_in_flight: int
    message_timeout_s: float
    sample_rate: int
    envelope: bool
    headers: bool
    desired_tag: str
    ext_filter: Mapping[str, Any] | None
    output_buffer_bytes: int
    output_buffer_timeout_s: float
    auto_touch: bool
    middleware: Sequence[ConsumeMiddleware]
    max_attempts: int
    requeue_delay_s: float
    requeue_delay_max_s: float
    backoff_failures: int
    backoff_s: float
    backoff_max_s: float
    low_rdy_idle_s: float
    low_rdy_hold_s: float


Options = TypeVar("Options", bound=ClientOptions)

# Field, least, most: what nsqd would refuse, or what makes no sense.
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("heartbeat_s", 1, limits.HEARTBEAT_MAX_NS / limits.SECOND),
    ("deflate_level", 1, 9),
    ("connect_timeout_s", 0.001, 3600),
    ("reconnect_delay_s", 0.001, 3600),
    ("reconnect_delay_max_s", 0.001, 3600),
    ("lookup_interval_s", 0.01, 86400),
    ("lookup_jitter", 0, 1),
    ("lookup_timeout_s", 0.001, 3600),
    ("publish_timeout_s", 0.001, 86400),
    ("request_timeout_s", 0.001, 3600),
    ("retry_delay_s", 0.001, 3600),
    ("retry_delay_max_s", 0.001, 3600),
    ("batch_count_max", 1, 1_000_000),
    ("batch_bytes_max", 1, 1 << 30),
    ("requests_max", 1, 100_000),
    ("pending_count_max", 1, 1 << 40),
    ("pending_bytes_max", 1, 1 << 50),
    ("max_in_flight", 1, 1_000_000),
    ("message_timeout_s", 0, limits.MESSAGE_TIMEOUT_MAX_NS / limits.SECOND * 100),
    ("sample_rate", 0, 99),
    ("output_buffer_bytes", -1, limits.MIB),
    ("output_buffer_timeout_s", -1, 3600),
    ("max_attempts", 0, 65535),
    ("requeue_delay_s", 0, 86400),
    ("requeue_delay_max_s", 0, 86400),
    ("backoff_failures", 1, 1000),
    ("backoff_s", 0.001, 3600),
    ("backoff_max_s", 0, 86400),
    ("low_rdy_idle_s", 0.01, 86400),
    ("low_rdy_hold_s", 0.01, 86400),
    ("stop_timeout_s", 0, 86400),
)


def settle_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """`options` with `changes`, checked. Raises ConfigError."""
    known = {entry.name for entry in fields(options)}
    for name, value in changes.items():
        if name not in known:
            near = nearest(name, known)
            meant = f"did you mean {near}?" if near else f"there are {', '.join(sorted(known))}"
            raise ConfigError(name, value, f"is no option; {meant}")
    settled = replace(options, **changes)
    for name, least, most in _RANGES:
        if name in known and not is_within(getattr(settled, name), least, most):
            raise ConfigError(name, getattr(settled, name), f"must be from {least} to {most}")
    if isinstance(settled, ConnectionOptions):
        _check_connection(settled)
    secret = settled.http_secret if isinstance(settled, IdempotentOptions) else ""
    if not all("!" <= one <= "~" for one in secret):  # it becomes a header
        raise ConfigError("http_secret", "(not shown)", "must be of visible ASCII characters")
    return settled


def _check_connection(options: ConnectionOptions) -> None:
    if not isinstance(options.auth_secret, str):
        kind = type(options.auth_secret).__name__
        raise ConfigError("auth_secret", f"a {kind}", "must be a str")
    if options.snappy and options.deflate:
        raise ConfigError("snappy", True, "nsqd refuses snappy and deflate together")


def address_list(addresses: str | Sequence[str]) -> list[str]:
    """One address or several, each `host:port`, `nsq://host:port` or the path of a unix socket.
    Raises ConfigError."""
    given = [addresses] if isinstance(addresses, str) else list(addresses)
    found = [address.removeprefix("nsq://") for address in given]
    for address in found:
        split_address(address)
    return list(dict.fromkeys(found))


def split_address(address: str) -> tuple[str, int]:
    """(host, port); port 0 for the path of a unix socket."""
    if "/" in address and "://" not in address:
        return address, 0
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError("address", address, "must be host:port or the path of a unix socket")
    return host.removeprefix("[").removesuffix("]"), int(port)
