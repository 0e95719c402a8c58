"""Every error text, byte by byte, as clients of NSQ know it."""

from cases import each
from penstock.wire.errors import NOT_IN_FLIGHT, NOT_OWNER, Fault

ID = b"0123456789abcdef"

TEXTS: list[tuple[Fault, tuple[bytes | int, ...], bytes]] = [
    (Fault.BAD_PROTOCOL, (), b"E_BAD_PROTOCOL"),
    (Fault.INVALID_COMMAND, (b"X",), b"E_INVALID invalid command X"),
    (Fault.INVALID_COMMAND, (b"",), b"E_INVALID invalid command "),
    (Fault.INVALID_COMMAND, (b"\xff",), b"E_INVALID invalid command \xff"),
    (Fault.WRONG_STATE, (b"SUB",), b"E_INVALID cannot SUB in current state"),
    (
        Fault.TLS_REQUIRED,
        (b"SUB",),
        b"E_INVALID cannot SUB in current state (TLS required)",
    ),
    (Fault.SUB_HEARTBEATS_OFF, (), b"E_INVALID cannot SUB with heartbeats disabled"),
    (Fault.PARAMETERS_MISSING, (b"SUB",), b"E_INVALID SUB insufficient number of parameters"),
    (Fault.PARAMS_MISSING, (b"FIN",), b"E_INVALID FIN insufficient number of params"),
    (Fault.AUTH_PARAMETERS, (), b"E_INVALID AUTH invalid number of parameters"),
    (Fault.AUTH_TWICE, (), b"E_INVALID AUTH already set"),
    (Fault.BAD_ID, (), b"E_INVALID invalid message ID"),
    (Fault.RDY_UNREADABLE, (b"x",), b"E_INVALID RDY could not parse count x"),
    (Fault.RDY_RANGE, (2501, 2500), b"E_INVALID RDY count 2501 out of range 0-2500"),
    (Fault.TIMEOUT_UNREADABLE, (b"REQ", b"x"), b"E_INVALID REQ could not parse timeout x"),
    (Fault.TIMEOUT_UNREADABLE, (b"DPUB", b"x"), b"E_INVALID DPUB could not parse timeout x"),
    (
        Fault.DPUB_RANGE,
        (3600001, 3600000),
        b"E_INVALID DPUB timeout 3600001 out of range 0-3600000",
    ),
    (Fault.BAD_TOPIC, (b"SUB", b'"x"'), b'E_BAD_TOPIC SUB topic name "x" is not valid'),
    (
        Fault.BAD_TOPIC_MPUB,
        (b'"x"',),
        b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "x" is not valid',
    ),
    (Fault.BAD_CHANNEL, (b"SUB", b'"x"'), b'E_BAD_CHANNEL SUB channel name "x" is not valid'),
    (Fault.BODY_SIZE_UNREAD, (b"IDENTIFY",), b"E_BAD_BODY IDENTIFY failed to read body size"),
    (Fault.BODY_TOO_BIG, (b"AUTH", 9, 5), b"E_BAD_BODY AUTH body too big 9 > 5"),
    (Fault.BODY_SIZE_INVALID, (b"MPUB", -1), b"E_BAD_BODY MPUB invalid body size -1"),
    (Fault.BODY_UNREAD, (b"AUTH",), b"E_BAD_BODY AUTH failed to read body"),
    (Fault.IDENTIFY_JSON, (), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
    (
        Fault.IDENTIFY_VALUE,
        (b"heartbeat interval", 999),
        b"E_BAD_BODY IDENTIFY heartbeat interval (999) is invalid",
    ),
    (Fault.MPUB_COUNT_UNREAD, (b"MPUB",), b"E_BAD_BODY MPUB failed to read message count"),
    (Fault.MPUB_COUNT, (b"MPUB", 0), b"E_BAD_BODY MPUB invalid message count 0"),
    (
        Fault.COMPRESSION_TWICE,
        (),
        b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
    ),
    (
        Fault.BAD_PARTITION,
        (b"PUB_TRACE", b'"7"'),
        b'E_BAD_PARTITION PUB_TRACE partition "7" is not valid',
    ),
    (
        Fault.PARTITION_MISSING,
        (b"PUB",),
        b"E_BAD_PARTITION PUB needs a partition or a key on this topic",
    ),
    (Fault.BAD_TAG, (b'"a b"',), b'E_BAD_TAG IDENTIFY desired tag "a b" is not valid'),
    (Fault.BAD_FILTER, (b"why",), b"E_INVALID IDENTIFY ext_filter: why"),
    (
        Fault.SUB_EXTEND_NEED,
        (b"SUB", b'"t"'),
        b'E_SUB_EXTEND_NEED SUB topic "t" is extended: IDENTIFY has to say extend_support',
    ),
    (
        Fault.SUB_EXTEND_FORBIDDEN,
        (b"SUB", b'"t"'),
        b'E_SUB_EXTEND_FORBIDDON SUB topic "t" is not extended: IDENTIFY must not say '
        b"extend_support",
    ),
    (Fault.IDENTIFY_FAILED, (b"why",), b"E_IDENTIFY_FAILED IDENTIFY failed why"),
    (
        Fault.MESSAGE_SIZE_UNREAD,
        (b"PUB",),
        b"E_BAD_MESSAGE PUB failed to read message body size",
    ),
    (Fault.MESSAGE_SIZE_INVALID, (b"PUB", 0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (Fault.MESSAGE_TOO_BIG, (b"MPUB", 101, 100), b"E_BAD_MESSAGE MPUB message too big 101 > 100"),
    (Fault.MESSAGE_UNREAD, (b"DPUB",), b"E_BAD_MESSAGE DPUB failed to read message body"),
    (
        Fault.MPUB_MESSAGE_SIZE_UNREAD,
        (b"MPUB", 1),
        b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
    ),
    (
        Fault.MPUB_MESSAGE_SIZE,
        (b"MPUB", 5, 0),
        b"E_BAD_MESSAGE MPUB invalid message(5) body size 0",
    ),
    (
        Fault.JSON_HEADER_SIZE,
        (b"PUB_EXT", 9),
        b"E_INVALID_JSON_HEADER PUB_EXT invalid JSON header size 9",
    ),
    (
        Fault.JSON_HEADER,
        (b"PUB_EXT", 5),
        b"E_INVALID_JSON_HEADER PUB_EXT JSON header is no flat object of strings from byte 5 on",
    ),
    (
        Fault.MPUB_JSON_HEADER_SIZE,
        (b"MPUB_EXT", 1, 9),
        b"E_INVALID_JSON_HEADER MPUB_EXT invalid message(1) JSON header size 9",
    ),
    (
        Fault.MPUB_JSON_HEADER,
        (b"MPUB_EXT", 1, 5),
        b"E_INVALID_JSON_HEADER MPUB_EXT message(1) JSON header is no flat object of strings "
        b"from byte 5 on",
    ),
    (
        Fault.EXT_NOT_SUPPORT,
        (b"PUB_EXT", b'"t"'),
        b'E_EXT_NOT_SUPPORT PUB_EXT topic "t" is not extended: it takes no headers but key and '
        b"##trace_id",
    ),
    (Fault.PUB_FAILED, (b"exiting",), b"E_PUB_FAILED PUB failed exiting"),
    (Fault.MPUB_FAILED, (b"exiting",), b"E_MPUB_FAILED MPUB failed exiting"),
    (Fault.DPUB_FAILED, (b"exiting",), b"E_DPUB_FAILED DPUB failed exiting"),
    (
        Fault.SUB_FAILED,
        (b"consumers for t:c exceeds limit of 1",),
        b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1",
    ),
    (
        Fault.BAD_OFFSET,
        (b"SUB_ADVANCED", b'"x"'),
        b'E_INVALID SUB_ADVANCED offset "x" is not valid',
    ),
    (Fault.NOT_LEADER, (b"SUB", b"why"), b"E_FAILED_ON_NOT_LEADER SUB: why"),
    (Fault.NOT_WRITABLE, (b"why",), b"E_FAILED_ON_NOT_WRITABLE why"),
    (Fault.TOO_MUCH_WAITING, (b"why",), b"E_PUB_TOO_MUCH_WAITING why"),
    (
        Fault.SUB_ORDER_IS_MUST,
        (b"SUB", b"t"),
        b"E_SUB_ORDER_IS_MUST SUB topic t has only SUB_ORDERED",
    ),
    (Fault.ORDER_SAMPLED, (b"SUB_ORDERED",), b"E_INVALID cannot SUB_ORDERED with a sample_rate"),
    (Fault.CHANNEL_NOT_REGISTERED, (b"why",), b"E_SUB_CHANNEL_NOT_REGISTERED why"),
    (Fault.FIN_FAILED, (ID, NOT_IN_FLIGHT), b"E_FIN_FAILED FIN %b failed ID not in flight" % ID),
    (
        Fault.REQ_FAILED,
        (ID, NOT_OWNER),
        b"E_REQ_FAILED REQ %b failed client does not own message" % ID,
    ),
    (
        Fault.TOUCH_FAILED,
        (ID, NOT_IN_FLIGHT),
        b"E_TOUCH_FAILED TOUCH %b failed ID not in flight" % ID,
    ),
    (Fault.AUTH_FIRST, (b"SUB",), b"E_AUTH_FIRST AUTH required before SUB"),
    (Fault.AUTH_FAILED, (), b"E_AUTH_FAILED AUTH failed"),
    (Fault.AUTH_NONE_FOUND, (), b"E_UNAUTHORIZED AUTH no authorizations found"),
    (
        Fault.AUTH_DENIED,
        (b"PUB", b'"topic"', b'""'),
        b'E_UNAUTHORIZED AUTH failed for PUB on "topic" ""',
    ),
    (Fault.AUTH_DISABLED, (), b"E_AUTH_DISABLED AUTH disabled"),
    (Fault.AUTH_ERROR, (b"why",), b"E_AUTH_ERROR AUTH error why"),
]


@each(("fault", "values", "data"), TEXTS)
def test_text(fault: Fault, values: tuple[bytes | int, ...], data: bytes) -> None:
    assert fault.data(*values) == data


def test_every_fault_is_in_the_table() -> None:
    assert {fault for fault, _, _ in TEXTS} == set(Fault)


def test_which_errors_do_not_end_the_connection() -> None:
    mild = {fault for fault in Fault if not fault.fatal}
    settling = {Fault.FIN_FAILED, Fault.REQ_FAILED, Fault.TOUCH_FAILED}
    assert mild == settling | {Fault.EXT_NOT_SUPPORT, Fault.NOT_WRITABLE}
