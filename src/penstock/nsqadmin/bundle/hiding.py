"""What must not leave the house: secrets always, names and addresses on request.

Secrets are found by the name that they go by ("...secret...", "...token...", "...password...") and
by their place in a URL: of a URL only its scheme, host and port are kept, because user, path and
query may each hold one. A JSON document is walked, so that a topic named "tokens" is no secret;
text for people is searched.

Names are replaced by numbers ("topic-3"), the same name by the same number throughout a bundle, so
that a reader can still follow a topic from node to node. What a JSON document holds under a key
that names things is replaced whole. In all other text the known names are looked for word by word,
and so are addresses, and directories of paths, whether they are known or not. Loopback addresses,
the topics that Penstock keeps for itself and "#ephemeral" stay: they say much and betray nobody.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

import msgspec

from penstock.broker.internal import is_internal
from penstock.nsqadmin import deadletters
from penstock.nsqadmin.bundle.form import Kind

MASK = "***"

# Every repetition has a bound: what a daemon of others sends must not keep us busy.
_WORD = (
    r"(?:secret|passw(?:or)?d|passphrase|token|credential|api[-_]?key|access[-_]?key"
    r"|authorization|bearer)[\w.-]{0,64}"
)
_SECRET_KEY = re.compile(_WORD, re.IGNORECASE)
_SECRET_TEXT = re.compile(
    rf"({_WORD})(\"?\s{{0,8}}[=:, ]\s{{0,8}}\"?(?:(?:bearer|basic|digest) )?)([^\s\"',;\x00]+)",
    re.IGNORECASE,
)
_URL = re.compile(r"\b([a-zA-Z][a-zA-Z0-9+.-]{0,20})://([^\s\"'<>\\\x00]*)")
_LOGIN = re.compile(r"[^\s/:\"']+:[^\s/\"']+$")  # "user:password", before an @
_LOGIN_CHARS = 256


# --- secrets ---


def public_urls(text: str) -> str:
    """Every URL in it as scheme, host and port."""
    if "://" in text:
        text = _URL.sub(_public_url, text)
    if "@" in text:
        *befores, last = text.split("@")
        text = "@".join([*map(_without_login, befores), last])
    return text


def _without_login(before: str) -> str:
    found = _LOGIN.search(before[-_LOGIN_CHARS:])
    return before[: -len(found[0])] + MASK if found else before


def _public_url(found: re.Match[str]) -> str:
    rest = found[2].rpartition("@")[2]
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    hidden = f"/{MASK}" if rest[end:].strip("/") else rest[end:]
    return f"{found[1]}://{rest[:end]}{hidden}"


def without_secrets(kind: Kind, data: bytes) -> bytes:
    """A file as it may be written down."""
    if kind is Kind.BINARY:
        return data
    if kind is Kind.JSON:
        try:
            return to_bytes(clean(json.loads(data)))
        except (ValueError, RecursionError):
            kind = Kind.TEXT  # a daemon that answers something else: still nothing gets out
    text = data.decode("utf-8", "replace")
    if kind is Kind.METRICS:
        return "\n".join(map(_clean_metric, text.split("\n"))).encode()
    if kind is Kind.WORDS:
        return clean_words(text.split("\0")).encode()
    return clean_text(text).encode()


def clean_text(text: str) -> str:
    return _SECRET_TEXT.sub(rf"\1\2{MASK}", public_urls(text))


def _clean_metric(line: str) -> str:
    """A sample holds names and a number; a daemon of others may say anything instead."""
    return line if _SAMPLE.fullmatch(line) else clean_text(line)


def clean_words(words: list[str]) -> str:
    """A command line, a word in a line. A secret stands behind its flag's = or in the next word."""
    shown: list[str] = []
    is_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_secret = _SECRET_KEY.search(name) is not None
        if is_next and not word.startswith("-"):
            shown.append(MASK)
        elif is_secret and equals:
            shown.append(f"{name}={MASK}")
        else:
            shown.append(clean_text(word))
        is_next = is_secret and not equals and word.startswith("-")
    return "\n".join(shown)


def clean(value: Any) -> Any:
    """A JSON document."""
    if isinstance(value, dict):
        return {key: _clean_member(str(key), one) for key, one in value.items()}
    if isinstance(value, list):
        return [clean(one) for one in value]
    return clean_text(value) if isinstance(value, str) else value


def _clean_member(key: str, value: Any) -> Any:
    is_plain = isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    )
    if is_plain and value and _SECRET_KEY.search(key):
        return MASK
    return clean(value)


def to_bytes(document: Any) -> bytes:
    """For people to read, too."""
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=1)
    except (ValueError, OverflowError):  # half a surrogate pair, or a number of many digits
        text = json.dumps(document, indent=1, ensure_ascii=False)
        return text.encode("utf-8", "replace")


# --- names ---

_KEYS = {
    **dict.fromkeys(("topic", "topic_name", "topics", "dead_letter_topic"), "topic"),
    **dict.fromkeys(("channel", "channel_name", "channels"), "channel"),
    **dict.fromkeys(("hostname", "host"), "host"),
    **dict.fromkeys(("client_id", "auth_identity"), "client"),
    **dict.fromkeys(("who", "user", "users"), "user"),
    **dict.fromkeys(("topology_zone", "zone"), "zone"),
    **dict.fromkeys(("topology_region", "region"), "region"),
    "installation": "installation",
}  # fmt: skip
_ADDRESS_KEYS = ("address", "addresses", "addr")
_PATH_KEYS = ("path", "file", "cert", "key", "directory", "mount")
# Words that a value may be without telling anything about those who chose it.
_PLAIN = frozenset((
    "OK", "disk", "os", "", "true", "false", "none", "null", "text", "json", "get", "post", "auto",
    "required", "off", "debug", "info", "warn", "error", "fatal", "max", MASK,
))  # fmt: skip
# What clients call themselves, up to the slash: libraries, not those who use them.
_LIBRARIES = frozenset((
    "go-nsq", "pynsq", "nsqjs", "ansq", "gnsq", "nsqd", "nsqadmin", "nsqlookupd", "nsq_to_file",
    "nsq_to_http", "nsq_to_nsq", "nsq_tail", "nsq_stat", "to_nsq", "penstock",
))  # fmt: skip
_URL_HOST = re.compile(r"(?<=://)(\[[^\]\s]*\]|[^\s/:?#\"'<>\[\]]+)")
_RUN = re.compile(r"[\w.#-]+")
_PIECES = re.compile(r"([.#-])")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_DIRECTORIES = re.compile(r"(?<![\w/.:*])/(?:[^\s/\"'():=,]+/)+")
_SAMPLE = re.compile(r'[A-Za-z_:][\w:]*(?:\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? [\w.+-]+( \d+)?')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_IRREGULAR_MIN = 3  # characters of a name with blanks or slashes that is looked for in text
_PASSED = frozenset(("localhost",))


class Names:
    """Who is who. Let it see every JSON document before anything is replaced in text."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._known: dict[str, str] = {}  # names that can be a run of text
        self._irregular: dict[str, str] = {}
        self._pieces_max = 7  # of a known name; an IPv4 address has seven

    def of(self, kind: str, name: str) -> str:
        """What stands for it."""
        if not name or name == MASK or _stays(kind, name):
            return name
        found = self._given.get((kind, name))
        if found is None:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            mark = "#ephemeral" if name.endswith("#ephemeral") else ""
            found = self._given[kind, name] = f"{kind}-{count}{mark}"
            self._learn(name, found)
        return found

    def _learn(self, name: str, shown: str) -> None:
        if _RUN.fullmatch(name):
            self._known.setdefault(name, shown)
            self._pieces_max = max(self._pieces_max, len(_PIECES.split(name)))
        elif len(name) >= _IRREGULAR_MIN:
            self._irregular.setdefault(name, shown)

    def address(self, text: str) -> str:
        """ "host:port", "host" or "lookupd:port/host:port": hosts are replaced, ports stay."""
        return "/".join(self._one_address(one) for one in text.split("/"))

    def _one_address(self, text: str) -> str:
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
            host, colon, port = text, "", ""
        return f"{self.of('host', host.strip('[]'))}{colon}{port}"

    # --- a file ---

    def hide(self, kind: Kind, data: bytes, is_config: bool = False) -> bytes | None:
        """None: it can't be told what is in there."""
        if kind is Kind.BINARY:
            return None
        if kind is Kind.JSON:
            walk = self.config if is_config else self.document
            try:
                return to_bytes(walk(json.loads(data)))
            except (ValueError, RecursionError):
                kind = Kind.TEXT
        text = data.decode("utf-8", "replace")
        return (self.metrics(text) if kind is Kind.METRICS else self.text(text)).encode()

    def metrics(self, text: str) -> str:
        return "\n".join(map(self._metric, text.split("\n")))

    def _metric(self, line: str) -> str:
        is_ours = _SAMPLE.fullmatch(line) or line.startswith(("# HELP ", "# TYPE "))
        return _LABEL.sub(self._label, line) if is_ours else self.text(line)

    def _label(self, found: re.Match[str]) -> str:
        kind = _KEYS.get(found[1])
        return found[0] if kind is None else f'{found[1]}="{self.of(kind, found[2])}"'

    def document(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self._key(one): self.document(inside, one) for one, inside in value.items()}
        if isinstance(value, list):
            return [self.document(one, key) for one in value]
        return self._value(key, value) if isinstance(value, str) else value

    def _key(self, key: str) -> str:
        """Members of nsqlookupd's /debug are named by what they register."""
        category, colon, rest = key.partition(":")
        if colon and category in ("client", "topic", "channel"):
            topic, colon, channel = rest.partition(":")
            return f"{category}:{self.of('topic', topic)}{colon}{self.of('channel', channel)}"
        return key

    def _value(self, key: str, value: str) -> str:
        last = key.rpartition("_")[2]
        if key in _KEYS:
            return self.of(_KEYS[key], value)
        if value in _PLAIN:
            return value
        if key == "user_agent":
            return value if value.partition("/")[0] in _LIBRARIES else self.of("agent", value)
        if last in _ADDRESS_KEYS:
            return self.text(value) if "://" in value or " " in value else self.address(value)
        if last in _PATH_KEYS:
            return self.of("path", value)
        return self.text(value)

    def config(self, document: dict[str, Any]) -> dict[str, Any]:
        """Values of a daemon's config: what is not known to be harmless is replaced whole."""
        return {key: self._config_value(key, value) for key, value in document.items()}

    def _config_value(self, key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._config_value(key, one) for one in value]
        if not isinstance(value, str) or value in _PLAIN:
            return value
        if key in _KEYS or key.rpartition("_")[2] in (*_ADDRESS_KEYS, *_PATH_KEYS):
            return self._value(key, value)
        return self.of("value", value)

    # --- text ---

    def text(self, text: str) -> str:
        for name in sorted(self._irregular, key=len, reverse=True):
            text = text.replace(name, self._irregular[name])
        text = _URL_HOST.sub(lambda found: self.of("host", found[0].strip("[]")), text)
        text = _DIRECTORIES.sub("/.../", text)
        text = _IPV6.sub(self._ipv6, text)
        return _RUN.sub(self._run, text)

    def _ipv6(self, found: re.Match[str]) -> str:
        return self.of("host", found[0]) if _is_address(found[0]) else found[0]

    def _run(self, found: re.Match[str]) -> str:
        run = found[0]
        if _stays("", run) or run in self._known:
            return self._known.get(run, run)
        pieces = _PIECES.split(run)
        return run if len(pieces) == 1 else "".join(self._replaced(pieces))

    def _replaced(self, pieces: list[str]) -> list[str]:
        """The longest known names among pieces of a word, from the left on."""
        shown: list[str] = []
        at = 0
        while at < len(pieces):
            for end in range(min(len(pieces), at + self._pieces_max), at, -1):
                found = self._piece("".join(pieces[at:end]))
                if found is not None:
                    shown.append(found)
                    at = end
                    break
            else:
                shown.append(pieces[at])
                at += 1
        return shown

    def _piece(self, text: str) -> str | None:
        if _IPV4.fullmatch(text) and _is_address(text):
            return self.of("host", text)
        return self._known.get(text)


def _stays(kind: str, name: str) -> bool:
    if kind in ("topic", "channel"):
        return is_internal(name) or (kind == "channel" and name == deadletters.REDRIVE)
    if name in _PASSED:
        return True
    if not _is_address(name):
        return False
    address = ipaddress.ip_address(name)
    return address.is_loopback or address.is_unspecified


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
