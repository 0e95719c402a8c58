from __future__ import annotations

from cases import each
from penstock.wire.names import is_ephemeral, is_valid_name, quote


@each(
    ("name", "valid"),
    [
        (b"a", True),
        (b"A.b_c-9", True),
        (b".", True),
        (b"x" * 64, True),
        (b"x" * 54 + b"#ephemeral", True),
        (b"x" * 65, False),
        (b"x" * 60 + b"#ephemeral", False),
        (b"", False),
        (b"#ephemeral", False),
        (b"a#ephemeral#ephemeral", False),
        (b"a#other", False),
        (b"a b", False),
        (b"a\n", False),
        (b"a/b", False),
        ("ä".encode(), False),
    ],
)
def test_valid_names(name: bytes, valid: bool) -> None:
    assert is_valid_name(name) is valid


def test_ephemeral_names_end_in_the_suffix() -> None:
    assert is_ephemeral("a#ephemeral")
    assert not is_ephemeral("ephemeral")


@each(
    ("name", "quoted"),
    [
        (b"x", b'"x"'),
        (b"", b'""'),
        (b'a"b\\c', b'"a\\"b\\\\c"'),
        (b"\a\b\f\n\r\t\v", b'"\\a\\b\\f\\n\\r\\t\\v"'),
        (b"\x00\x1f\x7f", b'"\\x00\\x1f\\x7f"'),
        (b"\xff\xc3", b'"\\xff\\xc3"'),
        ("ä€😀".encode(), '"ä€😀"'.encode()),
        ("\u00a0\u2028".encode(), b'"\\u00a0\\u2028"'),
        ("\U000e0001".encode(), b'"\\U000e0001"'),
        (b"a b", b'"a b"'),
    ],
)
def test_quoting_is_that_of_go(name: bytes, quoted: bytes) -> None:
    assert quote(name) == quoted
