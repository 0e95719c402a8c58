"""The JSON headers of PUB_EXT: which documents are let in, and what is taken out of them."""

import json
from types import ModuleType
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from cases import each
from penstock import kernel
from penstock.kernel import Headers, codec
from penstock.kernel.engine import is_true_in, member_of
from penstock.kernel.traceparent import parse_traceparent

RIGHT = -1
TRACE_MAX = (1 << 64) - 1

NAMES = ["key", "##trace_id", "zan_test", "other", "ke\u00e9", "", "traceparent"]
TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = b"00f067aa0ba902b7"
SAMPLED = b"00-" + TRACE + b"-" + PARENT + b"-01"
CONTEXT = 0xA3CE929D0E0E4736


def as_a_reader_has_it(document: bytes) -> Headers | None:
    """What another reader of JSON says; None: it is not let in."""
    try:
        found: Any = msgspec.json.decode(document, type=dict[str, str | bool])
        document.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    pairs = json.loads(document, object_pairs_hook=list)
    for name, value in pairs:
        if isinstance(value, bool) and name != "zan_test":
            return None
        if name == "##trace_id":
            digits = value.isascii() and value.isdigit() and len(value) <= 20
            if not digits or int(value) > TRACE_MAX:
                return None
    key, trace_id = found.get("key"), found.get("##trace_id")
    context = parse_traceparent(found.get("traceparent", "").encode())
    return Headers(
        RIGHT,
        None if key is None else key.encode("utf-8"),
        None if trace_id is None else int(trace_id),
        bool(set(found) - {"key", "##trace_id"}),
        context.context_id if context else 0,
    )


@each(
    "document",
    [
        b"{}", b" \t\r\n{ \n} ", b'{"key":"a"}', b'{"key":""}', b'{"a":"b"}',
        b'{ "key" : "a" , "##trace_id" : "7" }', b'{"##trace_id":"0"}', b'{"##trace_id":"007"}',
        b'{"##trace_id":"18446744073709551615"}', b'{"zan_test":true}', b'{"zan_test":"true"}',
        b'{"zan_test":false,"key":"k"}', b'{"key":"1","key":"2"}', b'{"k\\u0065y":"\\u0061"}',
        b'{"\\u006bey":"x","##trace\\u005Fid":"\\u0034"}', b'{"key":"\\"\\\\\\/\\b\\f\\n\\r\\t"}',
        b'{"key":"\\ud83d\\ude00"}', '{"key":"\u00e9\u20ac\U0001f600\x7f"}'.encode(),
        b'{"key":"\\u0000\\u007f\\u0080\\u07ff\\u0800\\uffff"}',
    ],
)  # fmt: skip
def test_valid_headers(functions: ModuleType, document: bytes) -> None:
    found = functions.parse_headers(document)
    assert found.wrong_at == RIGHT
    assert found == as_a_reader_has_it(document)


@each(
    ("document", "wrong_at"),
    [
        (b"", 0),
        (b"\xef\xbb\xbf{}", 0),
        (b"{", 1),
        (b"{}x", 2),
        (b"{,}", 1),
        (b'{"a"', 4),
        (b'{"a":', 5),
        (b'{"a":"b"', 8),
        (b'{"a":"b",}', 9),
        (b'{"a":"b" "c":"d"}', 9),
        (b'{"a" "b"}', 5),
        (b'{"a":1}', 5),
        (b'{"key":true}', 7),
        (b'{"zan_test":truex}', 16),
        (b'{"a":{}}', 5),
        (b'{"a":"\n"}', 6),
        (b'{"a":"\\x"}', 6),
        (b'{"a":"\\u12g4"}', 6),
        (b'{"a":"\\u12', 6),
        (b'{"a":"bc\\ud800"}', 8),
        (b'{"a":"\\udc00\\ud800"}', 6),
        (b'{"a":"\xff"}', 6),
        (b'{"a":"x\xc3"}', 7),
        (b'{"a":"\xc0\x80"}', 6),
        (b'{"a":"\xed\xa0\x80"}', 6),
        (b'{"a":"\xe2\x82', 6),
        (b'{"##trace_id":""}', 14),
        (b'{"##trace_id":"+1"}', 14),
        (b'{"##trace_id":"18446744073709551616"}', 14),
        (b'{"##trace_id":"000000000000000000001"}', 14),
        (b'{"##trace_id":"\\u0666"}', 14),
    ],
)
def test_invalid_headers_and_their_positions(
    functions: ModuleType, document: bytes, wrong_at: int
) -> None:
    assert functions.parse_headers(document) == Headers(wrong_at, None, None, False)
    assert as_a_reader_has_it(document) is None


@each(
    ("value", "context_id"),
    [
        (SAMPLED, CONTEXT),
        (SAMPLED[:-2] + b"00", 0),
        (SAMPLED[:-2] + b"02", 0),  # a flag that says something else
        (SAMPLED.replace(b"-", b"\\u002d"), CONTEXT),
        (b"01" + SAMPLED[2:], CONTEXT),  # a version to come, also with more behind it
        (b"cc" + SAMPLED[2:] + b"-what", CONTEXT),
        (b"cc" + SAMPLED[2:] + b".what", 0),
        (SAMPLED + b"-what", 0),
        (b"ff" + SAMPLED[2:], 0),
        (SAMPLED.upper(), 0),
        (SAMPLED[:-1] + b"g", 0),
        (SAMPLED.replace(b"-0", b"_0"), 0),
        (SAMPLED.replace(TRACE, b"0" * 32), 0),
        (SAMPLED.replace(PARENT, b"0" * 16), 0),
        (SAMPLED.replace(TRACE, TRACE[:16] + b"0" * 16), 0),
        (SAMPLED.replace(TRACE, b"0" * 16 + TRACE[16:]), CONTEXT),
        (SAMPLED.replace(TRACE, b"f" * 32), TRACE_MAX),
        (b"", 0),
        ("é".encode() + SAMPLED[2:], 0),
    ],
)
def test_a_trace_context(functions: ModuleType, value: bytes, context_id: int) -> None:
    document = b'{"traceparent":"%b"}' % value
    expected = Headers(RIGHT, None, None, True, context_id)
    assert functions.parse_headers(document) == expected == as_a_reader_has_it(document)


def test_the_last_trace_context_counts(functions: ModuleType) -> None:
    for last, context_id in ((b"", 0), (SAMPLED, CONTEXT)):
        document = b'{"traceparent":"%b","traceparent":"%b"}' % (SAMPLED, last)
        assert functions.parse_headers(document).context_id == context_id
    both = b'{"##trace_id":"7","traceparent":"%b","key":"k"}' % SAMPLED
    assert functions.parse_headers(both) == Headers(RIGHT, b"k", 7, True, CONTEXT)


texts = st.one_of(st.sampled_from(NAMES), st.text(max_size=6), st.integers(0, 99).map(str))
traceparents = st.sampled_from([SAMPLED.decode(), SAMPLED.decode()[:-1] + "0", "00-"])
values = st.one_of(texts, traceparents, st.booleans(), st.sampled_from([1, None, {}, ["x"]]))
documents = st.builds(
    lambda members, escaped, blanks: json.dumps(
        dict(members), ensure_ascii=escaped, indent=blanks
    ).encode("utf-8", "surrogatepass"),
    st.lists(st.tuples(st.one_of(st.sampled_from(NAMES), texts), values), max_size=4),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)
strings_only = st.dictionaries(
    st.one_of(st.sampled_from(NAMES), texts), st.one_of(texts, traceparents), max_size=4
).map(lambda members: json.dumps(members).encode())


@given(document=st.one_of(documents, strings_only))
def test_whole_documents_as_another_reader_has_them(document: bytes) -> None:
    one, two = kernel.parse_headers(document), codec.parse_headers(document)
    assert one == two
    assert (one if one.wrong_at == RIGHT else None) == as_a_reader_has_it(document)


@given(
    document=st.one_of(documents, strings_only, st.binary(max_size=20)),
    at=st.integers(0, 60),
    change=st.sampled_from([b"", b'"', b"\\", b"\\u", b"{", b"}", b",", b"\xe2", b"\x00", b"0"]),
    length=st.integers(0, 3),
)
@example(document=b'{"key":"\\ud83d\\ude00"}', at=14, change=b"", length=1)
def test_damaged_documents_as_another_reader_has_them(
    document: bytes, at: int, change: bytes, length: int
) -> None:
    damaged = document[:at] + change + document[at + length :]
    one, two = kernel.parse_headers(damaged), codec.parse_headers(damaged)
    assert one == two
    assert (one if one.wrong_at == RIGHT else None) == as_a_reader_has_it(damaged)


# --- one member of the headers is what `json` reads ---


SOME_NAMES = st.sampled_from(["a", "b", "key", "ä", 'quote"', "back\\", "\U0001f600"]) | st.text()
TEXTS = st.text() | st.sampled_from(['"', "\\", "\U0001f600", "/", "\b\f\n\r\t", "x" * 300])
VALUES = st.recursive(
    TEXTS | st.booleans() | st.none() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SOME_NAMES, inner, max_size=3),
    max_leaves=5,
)
SPACINGS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: "), (",\r\n ", ":")])


@st.composite
def objects(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A JSON object as text, and what it says."""
    message = draw(st.dictionaries(SOME_NAMES, VALUES, max_size=5))
    is_ascii, separators = draw(st.booleans()), draw(SPACINGS)
    text = json.dumps(message, ensure_ascii=is_ascii, separators=separators)
    return text.encode("utf-8", "surrogatepass"), message


def says(raw: bytes, wanted: bytes) -> bool:
    return is_true_in(b'{"%b":true}' % raw, wanted)


@given(objects(), SOME_NAMES)
def test_members_are_found_as_json_finds_them(
    case: tuple[bytes, dict[str, Any]], other: str
) -> None:
    headers, message = case
    for name in {*message, other}:
        try:
            wanted = name.encode()
        except UnicodeEncodeError:
            continue  # half of a surrogate pair: no header has such a name
        value = message.get(name)
        raw = member_of(headers, wanted)
        if not isinstance(value, str):
            assert raw is None
            continue
        assert raw is not None
        assert json.loads(b'"' + raw + b'"') == value
        if not any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            assert says(raw, value.encode())
        assert not says(raw, value.encode("utf-8", "replace") + b"!")


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0 a1', max_size=30).map(str.encode))
def test_no_bytes_lead_outside(headers: bytes) -> None:
    """What is found stands in them, whatever they are."""
    for name in (b"", b"a", b"1", b"\\"):
        for text in (headers, b'{"a":"1",' + headers, b'{"a":' + headers + b',"a":"x"}'):
            raw = member_of(text, name)
            assert raw is None or raw in text
            is_true_in(text, name)


@each(
    ("headers", "found"),
    [
        (b' { "a" : "1" } ', b"1"),
        (b'{"a":"1","a":"2"}', b"2"),
        (b'{"a":"1","a":3}', None),
        (b'{"b":[[{}],"\\"]"],"a":"1"}', b"1"),
        (b'{"\\u0061":"1"}', b"1"),
        (b"", None),
        (b'["a"]', None),
        (b'{"a":"1"', None),
        (b'{"a":"1",}', None),
        (b'{"a" "1"}', None),
        (b'{"a":}', None),
        (b'{"b":1 2,"a":"1"}', None),
        (b'{"a":"1}', None),
    ],
)
def test_members(headers: bytes, found: bytes | None) -> None:
    assert member_of(headers, b"a") == found


@each(
    ("headers", "message"),
    [
        (b'{"a":true}', True),
        (b'{ "a" : true , "b":1}', True),
        (b'{"a":"true"}', True),
        (b'{"a":"\\u0074rue"}', True),
        (b'{"\\u0061":true}', True),
        (b'{"a":"no","a":true}', True),
        (b'{"a":true,"a":"no"}', False),
        (b'{"a":false}', False),
        (b'{"a":"True"}', False),
        (b'{"a":truer}', False),
        (b'{"a":true', False),
        (b"", False),
    ],
)
def test_truth_of_header_values(headers: bytes, message: bool) -> None:
    assert is_true_in(headers, b"a") is message
