"""Errors of malformed publishes and cut-off bodies, as the kernel reports them, in NSQ's words."""

from __future__ import annotations

from penstock.kernel import BadPub, Cut, Verb
from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote

VERB_NAMES = {verb: verb.name.encode("ascii") for verb in Verb}
PUB_FAULTS = {
    Verb.PUB: Fault.PUB_FAILED,
    Verb.MPUB: Fault.MPUB_FAILED,
    Verb.DPUB: Fault.DPUB_FAILED,
    Verb.PUB_EXT: Fault.PUB_FAILED,
    Verb.MPUB_EXT: Fault.MPUB_FAILED,
}
SINGLE = (b"PUB", b"DPUB", b"PUB_TRACE", b"PUB_EXT")  # their body is one message


def bad_pub(verb: Verb, kind: BadPub, topic: bytes, a: int, b: int) -> WireFault:
    """The error for a malformed publish."""
    name = VERB_NAMES[verb]
    match kind:
        case BadPub.PARAMS:
            return WireFault(Fault.PARAMETERS_MISSING, name)
        case BadPub.TOPIC_NAME:
            return bad_topic(name, topic)
        case BadPub.PARTITION if not topic:
            return WireFault(Fault.PARTITION_MISSING, name)
        case BadPub.PARTITION:
            return WireFault(Fault.BAD_PARTITION, name, quote(topic))
        case BadPub.SIZE_INVALID:
            return WireFault(Fault.MESSAGE_SIZE_INVALID, name, a)
        case BadPub.SIZE_TOO_BIG | BadPub.MESSAGE_TOO_BIG:
            return WireFault(Fault.MESSAGE_TOO_BIG, name, a, b)
        case BadPub.BODY_INVALID:
            return WireFault(Fault.BODY_SIZE_INVALID, name, a)
        case BadPub.BODY_TOO_BIG:
            return WireFault(Fault.BODY_TOO_BIG, name, a, b)
        case BadPub.COUNT_INVALID:
            return WireFault(Fault.MPUB_COUNT, name, a)
        case BadPub.MESSAGE_INVALID:
            return WireFault(Fault.MPUB_MESSAGE_SIZE, name, a, b)
        case BadPub.HEADER_REFUSED:
            return WireFault(Fault.EXT_NOT_SUPPORT, name, quote(topic))
        case BadPub.HEADER_SIZE if verb == Verb.PUB_EXT:
            return WireFault(Fault.JSON_HEADER_SIZE, name, b)
        case BadPub.HEADER_SIZE:
            return WireFault(Fault.MPUB_JSON_HEADER_SIZE, name, a, b)
        case BadPub.HEADER_INVALID if verb == Verb.PUB_EXT:
            return WireFault(Fault.JSON_HEADER, name, b)
        case BadPub.HEADER_INVALID:
            return WireFault(Fault.MPUB_JSON_HEADER, name, a, b)


def cut_off(command: bytes, part: Cut, index: int) -> WireFault:
    """The error for a client that ended its stream within a command."""
    is_message = command in SINGLE
    match part:
        case Cut.SIZE if is_message:
            return WireFault(Fault.MESSAGE_SIZE_UNREAD, command)
        case Cut.SIZE:
            return WireFault(Fault.BODY_SIZE_UNREAD, command)
        case Cut.BODY if not is_message:
            return WireFault(Fault.BODY_UNREAD, command)
        case Cut.COUNT:
            return WireFault(Fault.MPUB_COUNT_UNREAD, command)
        case Cut.MESSAGE_SIZE:
            return WireFault(Fault.MPUB_MESSAGE_SIZE_UNREAD, command, index)
    return WireFault(Fault.MESSAGE_UNREAD, command)


def bad_topic(command: bytes, topic: bytes) -> WireFault:
    if command == b"MPUB":
        return WireFault(Fault.BAD_TOPIC_MPUB, quote(topic))
    return WireFault(Fault.BAD_TOPIC, command, quote(topic))
