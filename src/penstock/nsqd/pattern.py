"""Regular expressions of auth servers, in Go's syntax, matched without ever going back.

An auth server writes them for Go's `regexp`, whose matcher takes time in proportion to the text,
whatever the pattern. Python's `re` would take for ever on some, and knows a few other rules. So
this is a small matcher of its own: it follows all ways through the pattern at once, as a set of
positions in the name, which has 64 characters at most.

The syntax is RE2's, as far as names can tell a difference: groups, alternatives, repetition (also
lazy: a yes-or-no answer is the same), classes with ranges and the named ones, the usual escapes
and assertions, and the flags i, m, s and U. What Go refuses is refused here: looking ahead or
behind, references to groups, a repetition above 1,000. Unicode classes are refused too, for no
name has a letter beyond ASCII.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock import limits
from penstock.errors import PenstockError

REPEAT_MAX = 1000  # Go's own bound
DEPTH_MAX = 100  # of groups in groups
NODES_MAX = 20_000  # of one pattern once its repetitions are counted out

_WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS = frozenset(string.digits)
_SPACES = frozenset("\t\n\f\r ")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_NAMED = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset([*map(chr, range(32)), "\x7f"]),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": _SPACES | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANYTHING = 0x10FFFF

Positions = frozenset[int]
Accepts = Callable[[str], bool]  # one character


class PatternInvalid(PenstockError):
    pass


class Subject:
    """The name that is looked at. Repetitions within repetitions keep what they have found out for
    a position, or each level would multiply the work."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ends: dict[tuple[int, int], Positions] = {}  # by repetition and position


Node = Callable[[Subject, Positions], Positions]  # where a match may end that starts at one of them


class Flags(NamedTuple):
    ignore_case: bool = False  # i
    lines: bool = False  # m: ^ and $ match at line ends
    dot_all: bool = False  # s: . matches a newline


class Pattern:
    """Raises PatternInvalid for what Go would not compile, or what is too large."""

    def __init__(self, text: str) -> None:
        if len(text) > limits.AUTH_PATTERN_BYTES_MAX:
            raise PatternInvalid("it is too long")
        self.text = text
        self._node = _Parser(text).parse()

    def matches(self, name: str) -> bool:
        """Somewhere in `name`."""
        return bool(self._node(Subject(name), frozenset(range(len(name) + 1))))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


# --- nodes ---


def _one(accepts: Accepts, subject: Subject, starts: Positions) -> Positions:
    text = subject.text
    end = len(text)
    return frozenset(at + 1 for at in starts if at < end and accepts(text[at]))


def _sequence(parts: tuple[Node, ...], subject: Subject, starts: Positions) -> Positions:
    for part in parts:
        starts = part(subject, starts)
        if not starts:
            break
    return starts


def _either(parts: tuple[Node, ...], subject: Subject, starts: Positions) -> Positions:
    return frozenset[int]().union(*(part(subject, starts) for part in parts))


@dataclass(frozen=True, slots=True)
class _Repetition:
    part: Node
    least: int
    most: int | None
    number: int  # of this repetition in its pattern
    nested: bool  # there are others inside

    def __call__(self, subject: Subject, starts: Positions) -> Positions:
        if not self.nested:
            return self._ends(subject, starts)
        found = frozenset[int]()
        for at in starts:
            key = (self.number, at)
            if key not in subject.ends:
                subject.ends[key] = self._ends(subject, frozenset((at,)))
            found |= subject.ends[key]
        return found

    def _ends(self, subject: Subject, starts: Positions) -> Positions:
        for _ in range(self.least):
            starts = self.part(subject, starts)
            if not starts:
                return starts
        found = new = starts
        rounds = len(subject.text) + 1 if self.most is None else self.most - self.least
        while new and rounds > 0:
            rounds -= 1
            new = self.part(subject, new) - found
            found |= new
        return found


def _where(holds: Callable[[str, int], bool], subject: Subject, starts: Positions) -> Positions:
    return frozenset(at for at in starts if holds(subject.text, at))


def _line_start(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _line_end(text: str, at: int) -> bool:
    return at == len(text) or text[at] == "\n"


def _word_edge(text: str, at: int) -> bool:
    before = at > 0 and text[at - 1] in _WORD
    return before != (at < len(text) and text[at] in _WORD)


_ASSERTIONS: dict[str, Callable[[str, int], bool]] = {
    "A": lambda text, at: at == 0,
    "z": lambda text, at: at == len(text),
    "b": _word_edge,
    "B": lambda text, at: not _word_edge(text, at),
}


class _Set:
    """A class of characters."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, str]] = []
        self.parts: list[Accepts] = []
        self.negated = False

    def accepts(self, flags: Flags) -> Accepts:
        return partial(self._accepts, flags.ignore_case)

    def _accepts(self, ignore_case: bool, character: str) -> bool:
        forms = {character, character.lower(), character.upper()} if ignore_case else {character}
        found = any(
            any(low <= form <= high for low, high in self.ranges)
            or any(part(form) for part in self.parts)
            for form in forms
        )
        return found != self.negated


# --- the parser ---


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._repetitions = 0
        self._names: set[str] = set()

    def parse(self) -> Node:
        node, _ = self._alternatives(Flags())
        if self._at < len(self._text):
            raise PatternInvalid("unexpected )")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _skip(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternInvalid("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self, flags: Flags) -> tuple[Node, int]:
        """Up to the end or a closing parenthesis; the node, and how many it counts for."""
        branches = []
        total = 0
        while True:
            node, count, flags = self._branch(flags)
            branches.append(node)
            total += count
            if not self._skip("|"):
                break
        return (branches[0] if len(branches) == 1 else partial(_either, tuple(branches))), total

    def _branch(self, flags: Flags) -> tuple[Node, int, Flags]:
        parts: list[Node] = []
        total = 1
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._skip("\\Q"):
                quoted, _, _ = self._text[self._at :].partition("\\E")
                self._at += len(quoted)
                self._skip("\\E")
                parts += [self._character(c, flags) for c in quoted]
                total += len(quoted)
                continue
            changed = self._flag_group(flags)
            if changed is not None:
                flags = changed
                continue
            before = self._repetitions
            node, count = self._atom(flags)
            node, count = self._repetition(node, count, self._repetitions > before)
            parts.append(node)
            total += count
            if total > NODES_MAX:
                raise PatternInvalid("it is too large")
        return partial(_sequence, tuple(parts)), total, flags

    # --- repetition ---

    def _repetition(self, node: Node, count: int, nested: bool) -> tuple[Node, int]:
        repeated = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return node, count
            if repeated:
                raise PatternInvalid("invalid nested repetition operator")
            repeated = True
            self._skip("?")  # lazy: whether it matches is the same
            least, most = bounds
            self._repetitions += 1
            node = _Repetition(node, least, most, self._repetitions, nested)
            count *= max(least, most or 1, 1)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        start = self._at
        if not self._skip("{"):
            return None
        inside, closed, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        if not closed or not _is_number(least) or not (most == "" or _is_number(most)):
            self._at = start  # a brace like any other character
            return None
        self._at += len(inside) + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise PatternInvalid("invalid repeat count")
        return low, high

    # --- atoms ---

    def _atom(self, flags: Flags) -> tuple[Node, int]:
        character = self._next()
        if character == "(":
            return self._group(flags)
        if character == "[":
            return partial(_one, self._class().accepts(flags)), 1
        if character == "\\":
            return self._escape(flags), 1
        if character in "*+?" or (character == "{" and self._is_repeat()):
            raise PatternInvalid("missing argument to repetition operator")
        if character == ".":
            return partial(_one, _anything if flags.dot_all else _but_newline), 1
        if character == "^":
            return partial(_where, _line_start if flags.lines else _ASSERTIONS["A"]), 1
        if character == "$":
            return partial(_where, _line_end if flags.lines else _ASSERTIONS["z"]), 1
        return self._character(character, flags), 1

    def _is_repeat(self) -> bool:
        self._at -= 1
        start = self._at
        found = self._bounds() is not None
        self._at = start + 1
        return found

    def _character(self, character: str, flags: Flags) -> Node:
        one = _Set()
        one.ranges.append((character, character))
        return partial(_one, one.accepts(flags))

    def _escape(self, flags: Flags) -> Node:
        letter = self._next()
        if letter in _ASSERTIONS:
            return partial(_where, _ASSERTIONS[letter])
        if letter == "C":
            return partial(_one, _anything)
        accepts = _class_of(letter)
        if accepts is not None:
            return partial(_one, accepts)
        return self._character(self._escaped(letter), flags)

    def _escaped(self, letter: str) -> str:
        """The one character that a backslash and `letter` stand for."""
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "x":
            return self._hex()
        if letter in "01234567":
            return self._octal(letter)
        if letter.isascii() and not letter.isalnum():
            return letter
        raise PatternInvalid(f"invalid escape sequence \\{letter}")

    def _hex(self) -> str:
        if self._skip("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + len(closed)
        else:
            closed, digits = "}", self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                closed = ""
        is_hex = digits and all(digit in string.hexdigits for digit in digits)
        if not closed or not is_hex or int(digits, 16) > _ANYTHING:
            raise PatternInvalid("invalid escape sequence \\x")
        return chr(int(digits, 16))

    def _octal(self, first: str) -> str:
        digits = first
        while len(digits) < 3 and self._at < len(self._text) and self._text[self._at] in "01234567":
            digits += self._next()
        if first != "0" and len(digits) == 1:
            raise PatternInvalid(f"invalid escape sequence \\{first}")  # a reference to a group
        return chr(int(digits, 8))

    # --- groups and flags ---

    def _group(self, flags: Flags) -> tuple[Node, int]:
        if self._skip("?"):
            if self._skip("P<") or (self._peek("<") and not self._lookbehind() and self._skip("<")):
                self._group_name()
            else:
                flags = self._flags(flags, ":")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternInvalid("groups are nested too deep")
        node, count = self._alternatives(flags)
        if not self._skip(")"):
            raise PatternInvalid("missing closing )")
        self._depth -= 1
        return node, count

    def _lookbehind(self) -> bool:
        return self._peek("<=") or self._peek("<!")

    def _group_name(self) -> None:
        name, closed, _ = self._text[self._at :].partition(">")
        if not closed or not name or not set(name) <= _WORD or name in self._names:
            raise PatternInvalid("invalid group name")
        self._names.add(name)
        self._at += len(name) + 1

    def _flag_group(self, flags: Flags) -> Flags | None:
        """`(?i)` changes the flags of what follows; None when this is something else."""
        if not self._peek("(?"):
            return None
        inside = self._text[self._at + 2 :].partition(")")[0]
        if not inside or ":" in inside or not set(inside) <= set("imsU-"):
            return None
        self._at += 2
        return self._flags(flags, ")")

    def _flags(self, flags: Flags, end: str) -> Flags:
        names = {"i": "ignore_case", "m": "lines", "s": "dot_all"}
        value, seen_minus, changed = True, False, False
        while not self._skip(end):
            letter = self._next()
            if letter == "-" and not seen_minus:
                value, seen_minus, changed = False, True, False
            elif letter in names:
                flags = flags._replace(**{names[letter]: value})
                changed = True
            elif letter == "U":  # which repetitions are lazy: no difference
                changed = True
            else:
                raise PatternInvalid("invalid or unsupported Perl syntax")
        if seen_minus and not changed:
            raise PatternInvalid("missing flag after -")
        return flags

    # --- classes ---

    def _class(self) -> _Set:
        found = _Set()
        found.negated = self._skip("^")
        first = True
        while first or not self._peek("]"):
            if self._peek("[:") and ":]" in self._text[self._at :]:
                self._named_class(found)
            else:
                self._class_item(found)
            first = False
        self._skip("]")
        return found

    def _named_class(self, found: _Set) -> None:
        name, _, _ = self._text[self._at + 2 :].partition(":]")
        negated = name.startswith("^")
        members = _NAMED.get(name[negated:])
        if members is None:
            raise PatternInvalid("invalid character class range")
        self._at += len(name) + 4
        found.parts.append(partial(_in, members, negated))

    def _class_item(self, found: _Set) -> None:
        low = self._next()
        if low == "\\":
            letter = self._next()
            accepts = _class_of(letter)
            if accepts is not None:
                found.parts.append(accepts)
                return
            low = self._escaped(letter)
        high = low
        if self._peek("-") and not self._peek("-]"):
            self._skip("-")
            high = self._next()
            if high == "\\":
                high = self._escaped(self._next())
        if high < low:
            raise PatternInvalid("invalid character class range")
        found.ranges.append((low, high))


def _is_number(text: str) -> bool:
    """As Go reads it: no sign, no leading zero."""
    return text.isascii() and text.isdigit() and len(text) <= 9 and (text == "0" or text[0] != "0")


def _anything(character: str) -> bool:
    return True


def _but_newline(character: str) -> bool:
    return character != "\n"


def _in(members: frozenset[str], negated: bool, character: str) -> bool:
    return (character in members) != negated


def _class_of(letter: str) -> Accepts | None:
    members = _CLASSES.get(letter.lower())
    return None if members is None else partial(_in, members, letter.isupper())
