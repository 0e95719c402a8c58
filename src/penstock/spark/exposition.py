"""Figures of Spark programs for Prometheus: its text format, and a small server for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.errors import ConfigError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    name: str  # without the prefix
    kind: str
    help: str
    value: float | None  # None is left out
    labels: Mapping[str, str]


def exposed(metrics: Iterable[Metric]) -> str:
    """All of one name stand together, under its help."""
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        if metric.value is not None:
            by_name.setdefault(metric.name, []).append(metric)
    lines = []
    for name, each in by_name.items():
        lines.append(f"# HELP penstock_{name} {each[0].help}")
        lines.append(f"# TYPE penstock_{name} {each[0].kind}")
        for metric in each:
            labels = ",".join(f'{key}="{_escaped(text)}"' for key, text in metric.labels.items())
            lines.append(f"penstock_{name}{{{labels}}} {metric.value:.15g}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def served(address: str, text: Callable[[], str]) -> Iterator[int]:
    """GET /metrics at host:port, in a thread; gives the port. ConfigError when it can't listen."""
    host, port = _host_and_port(address)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds of silence

        def do_GET(self) -> None:
            is_known = urlsplit(self.path).path in ("/metrics", "/")
            body = text().encode() if is_known else b"GET /metrics\n"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A line for each scrape says nothing."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigError(
            "metrics-address", address, f"it can't be listened on: {error}"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        if parts.port is not None and parts.hostname:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ConfigError("metrics-address", address, "host:port, as 127.0.0.1:9209")
