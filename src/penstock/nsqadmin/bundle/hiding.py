"""Removes secrets, which must not leave the installation.

Secrets are found by the name that they go by ("...secret...", "...token...", "...password...") and
by their place in a URL: of a URL only its scheme, host and port are kept, because user, path and
query may each hold one. A JSON document is walked, so that a topic named "tokens" is no secret;
text for people is searched.
"""

import json
import re
from contextlib import suppress
from typing import Any

import msgspec

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
_SAMPLE = re.compile(r'[A-Za-z_:][\w:]*(?:\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? [\w.+-]+( \d+)?')


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


def without_secrets(name: str, data: bytes) -> bytes:
    """Of the file of this name, which says how they are searched in it."""
    if name.endswith(".pprof"):
        return data
    if name.endswith(".json"):
        with suppress(ValueError, RecursionError):  # a daemon that answers something else: as text
            return to_bytes(clean(json.loads(data)))
    text = data.decode("utf-8", "replace")
    if name.endswith("metrics.txt"):
        # A sample holds names and a number; a foreign daemon may send anything instead.
        lines = (one if _SAMPLE.fullmatch(one) else clean_text(one) for one in text.split("\n"))
        return "\n".join(lines).encode()
    if name.endswith("cmdline.txt"):
        return clean_words(text.split("\0")).encode()
    return clean_text(text).encode()


def clean_text(text: str) -> str:
    return _SECRET_TEXT.sub(rf"\1\2{MASK}", public_urls(text))


def clean_words(words: list[str]) -> str:
    """A command line, one word a line. A secret follows its flag's =, or is the next word."""
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
    """Readable for people, too."""
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=1)
    except (ValueError, OverflowError):  # half a surrogate pair, or a number of many digits
        text = json.dumps(document, indent=1, ensure_ascii=False)
        return text.encode("utf-8", "replace")
