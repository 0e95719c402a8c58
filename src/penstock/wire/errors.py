"""Every error that a V2 client can be sent, byte by byte.

The data of an error frame is `CODE` or `CODE<space>text`. Clients match on the code, and some match
on the text, so both are NSQ's own, odd spots included (MPUB's bad topic names its code twice). A
*fatal* error is followed by the end of the connection; FIN, REQ and TOUCH of a message that is not
this client's are the only errors of NSQ that a connection survives. Client libraries rely on that.
Of Youzan's own codes it survives those of a publish that is right, and refused here and now.

Texts are byte templates: what a client sent is quoted back raw, whatever its encoding.
"""

from enum import Enum

from penstock.errors import (
    ChannelUnregistered,
    PenstockError,
    Refused,
    TooMuchWaiting,
    WritesDisabled,
)


class Fault(Enum):
    """Name = (code, template of the text, fatal), fatal by default."""

    BAD_PROTOCOL = (b"E_BAD_PROTOCOL", b"")

    INVALID_COMMAND = (b"E_INVALID", b"invalid command %b")
    WRONG_STATE = (b"E_INVALID", b"cannot %b in current state")
    TLS_REQUIRED = (b"E_INVALID", b"cannot %b in current state (TLS required)")
    SUB_HEARTBEATS_OFF = (b"E_INVALID", b"cannot SUB with heartbeats disabled")
    PARAMETERS_MISSING = (b"E_INVALID", b"%b insufficient number of parameters")
    PARAMS_MISSING = (b"E_INVALID", b"%b insufficient number of params")
    AUTH_PARAMETERS = (b"E_INVALID", b"AUTH invalid number of parameters")
    AUTH_TWICE = (b"E_INVALID", b"AUTH already set")
    BAD_ID = (b"E_INVALID", b"invalid message ID")
    RDY_UNREADABLE = (b"E_INVALID", b"RDY could not parse count %b")
    RDY_RANGE = (b"E_INVALID", b"RDY count %d out of range 0-%d")
    TIMEOUT_UNREADABLE = (b"E_INVALID", b"%b could not parse timeout %b")
    DPUB_RANGE = (b"E_INVALID", b"DPUB timeout %d out of range 0-%d")

    BAD_TOPIC = (b"E_BAD_TOPIC", b"%b topic name %b is not valid")
    BAD_TOPIC_MPUB = (b"E_BAD_TOPIC", b"E_BAD_TOPIC MPUB topic name %b is not valid")
    BAD_PARTITION = (b"E_BAD_PARTITION", b"%b partition %b is not valid")
    PARTITION_MISSING = (b"E_BAD_PARTITION", b"%b needs a partition or a key on this topic")
    BAD_OFFSET = (b"E_INVALID", b"%b offset %b is not valid")
    BAD_CHANNEL = (b"E_BAD_CHANNEL", b"%b channel name %b is not valid")

    BODY_SIZE_UNREAD = (b"E_BAD_BODY", b"%b failed to read body size")
    BODY_TOO_BIG = (b"E_BAD_BODY", b"%b body too big %d > %d")
    BODY_SIZE_INVALID = (b"E_BAD_BODY", b"%b invalid body size %d")
    BODY_UNREAD = (b"E_BAD_BODY", b"%b failed to read body")
    IDENTIFY_JSON = (b"E_BAD_BODY", b"IDENTIFY failed to decode JSON body")
    IDENTIFY_VALUE = (b"E_BAD_BODY", b"IDENTIFY %b (%d) is invalid")
    MPUB_COUNT_UNREAD = (b"E_BAD_BODY", b"%b failed to read message count")
    MPUB_COUNT = (b"E_BAD_BODY", b"%b invalid message count %d")

    BAD_TAG = (b"E_BAD_TAG", b"IDENTIFY desired tag %b is not valid")
    BAD_FILTER = (b"E_INVALID", b"IDENTIFY ext_filter: %b")

    COMPRESSION_TWICE = (b"E_IDENTIFY_FAILED", b"cannot enable both deflate and snappy compression")
    IDENTIFY_FAILED = (b"E_IDENTIFY_FAILED", b"IDENTIFY failed %b")

    MESSAGE_SIZE_UNREAD = (b"E_BAD_MESSAGE", b"%b failed to read message body size")
    MESSAGE_SIZE_INVALID = (b"E_BAD_MESSAGE", b"%b invalid message body size %d")
    MESSAGE_TOO_BIG = (b"E_BAD_MESSAGE", b"%b message too big %d > %d")
    MESSAGE_UNREAD = (b"E_BAD_MESSAGE", b"%b failed to read message body")
    MPUB_MESSAGE_SIZE_UNREAD = (b"E_BAD_MESSAGE", b"%b failed to read message(%d) body size")
    MPUB_MESSAGE_SIZE = (b"E_BAD_MESSAGE", b"%b invalid message(%d) body size %d")

    JSON_HEADER_SIZE = (b"E_INVALID_JSON_HEADER", b"%b invalid JSON header size %d")
    JSON_HEADER = (
        b"E_INVALID_JSON_HEADER",
        b"%b JSON header is no flat object of strings from byte %d on",
    )
    MPUB_JSON_HEADER_SIZE = (
        b"E_INVALID_JSON_HEADER",
        b"%b invalid message(%d) JSON header size %d",
    )
    MPUB_JSON_HEADER = (
        b"E_INVALID_JSON_HEADER",
        b"%b message(%d) JSON header is no flat object of strings from byte %d on",
    )
    EXT_NOT_SUPPORT = (
        b"E_EXT_NOT_SUPPORT",
        b"%b topic %b is not extended: it takes no headers but key and ##trace_id",
        False,
    )

    PUB_FAILED = (b"E_PUB_FAILED", b"PUB failed %b")
    MPUB_FAILED = (b"E_MPUB_FAILED", b"MPUB failed %b")
    DPUB_FAILED = (b"E_DPUB_FAILED", b"DPUB failed %b")
    SUB_ORDER_IS_MUST = (b"E_SUB_ORDER_IS_MUST", b"%b topic %b has only SUB_ORDERED")
    ORDER_SAMPLED = (b"E_INVALID", b"cannot %b with a sample_rate")
    SUB_FAILED = (b"E_SUB_FAILED", b"SUB failed %b")

    NOT_LEADER = (b"E_FAILED_ON_NOT_LEADER", b"%b: %b")
    NOT_WRITABLE = (b"E_FAILED_ON_NOT_WRITABLE", b"%b", False)
    TOO_MUCH_WAITING = (b"E_PUB_TOO_MUCH_WAITING", b"%b")
    CHANNEL_NOT_REGISTERED = (b"E_SUB_CHANNEL_NOT_REGISTERED", b"%b")

    SUB_EXTEND_NEED = (
        b"E_SUB_EXTEND_NEED",
        b"%b topic %b is extended: IDENTIFY has to say extend_support",
    )
    SUB_EXTEND_FORBIDDEN = (
        b"E_SUB_EXTEND_FORBIDDON",
        b"%b topic %b is not extended: IDENTIFY must not say extend_support",
    )

    FIN_FAILED = (b"E_FIN_FAILED", b"FIN %b failed %b", False)
    REQ_FAILED = (b"E_REQ_FAILED", b"REQ %b failed %b", False)
    TOUCH_FAILED = (b"E_TOUCH_FAILED", b"TOUCH %b failed %b", False)

    AUTH_FIRST = (b"E_AUTH_FIRST", b"AUTH required before %b")
    AUTH_FAILED = (b"E_AUTH_FAILED", b"AUTH failed")
    AUTH_NONE_FOUND = (b"E_UNAUTHORIZED", b"AUTH no authorizations found")
    AUTH_DENIED = (b"E_UNAUTHORIZED", b"AUTH failed for %b on %b %b")
    AUTH_DISABLED = (b"E_AUTH_DISABLED", b"AUTH disabled")
    AUTH_ERROR = (b"E_AUTH_ERROR", b"AUTH error %b")

    def __init__(self, code: bytes, template: bytes, fatal: bool = True) -> None:
        self.code = code
        self.template = template
        self.fatal = fatal

    def data(self, *values: bytes | int) -> bytes:
        if not self.template:
            return self.code
        return self.code + b" " + self.template % values


NOT_IN_FLIGHT = b"ID not in flight"
NOT_IN_FLIGHT_HERE = (
    b"ID not in flight here: a partition of the topic has another leader now, which delivers again"
    b" what was not finished"
)
NOT_OWNER = b"client does not own message"


def reason_of(error: PenstockError) -> bytes:
    """The text that a client sees after `failed`."""
    return (error.reason if isinstance(error, Refused) else str(error)).encode("utf-8", "replace")


class WireFault(PenstockError):
    """The client gets `fault`; `data` is the whole text."""

    def __init__(self, fault: Fault, *values: bytes | int) -> None:
        self.fault = fault
        self.data = fault.data(*values)
        super().__init__(self.data.decode("utf-8", "backslashreplace"))


_OWN_CODES: dict[type[PenstockError], Fault] = {
    ChannelUnregistered: Fault.CHANNEL_NOT_REGISTERED,
    TooMuchWaiting: Fault.TOO_MUCH_WAITING,
    WritesDisabled: Fault.NOT_WRITABLE,
}


def failed(fault: Fault, error: PenstockError) -> WireFault:
    """`fault`, with the reason; or a refusal that has a code of its own, as in Youzan's NSQ."""
    return WireFault(_OWN_CODES.get(type(error), fault), reason_of(error))


def failed_because(fault: Fault, reason: str) -> WireFault:
    """The same where there is nothing but the reason."""
    own = Fault.NOT_WRITABLE if reason == WritesDisabled.REASON else fault
    return WireFault(own, reason.encode("utf-8", "replace"))
