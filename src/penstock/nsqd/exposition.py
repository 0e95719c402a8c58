"""The form of `/metrics`: Prometheus' text format 0.0.4."""

from __future__ import annotations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Value = int | float


def escape(value: str) -> str:
    """A label's value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def head(name: str, kind: str, text: str) -> bytes:
    return f"# HELP nsqd_{name} {text}\n# TYPE nsqd_{name} {kind}\n".encode()


def sample(name: str, label: str, value: Value) -> bytes:
    return f"nsqd_{name}{{{label}}} {value}\n".encode()
