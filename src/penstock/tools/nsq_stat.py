"""`nsq_stat`: rates and depths of one channel, summed over all nsqds that have its topic.

Ingress is what the channel was given per second, egress what left its depth.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.command.flags import Flag, Kind
from penstock.errors import FetchFailed, PenstockError
from penstock.net.fetch import Fetcher
from penstock.nsqdapi.calls import bracketed, stats_query, target
from penstock.tools import utility
from penstock.tools.output import WrongUse
from penstock.tools.utility import Values

PROGRAM = "nsq_stat"
HEADING_EVERY_ROWS = 25

FLAGS = (
    utility.VERSION,
    Flag("topic", Kind.STRING, "", "NSQ topic"),
    Flag("channel", Kind.STRING, "", "NSQ channel"),
    Flag("interval", Kind.DURATION, 2 * limits.SECOND, "time between rows"),
    Flag("count", Kind.STRING, "", "number of rows to print (nothing: no end)"),
    Flag("nsqd-http-address", Kind.STRINGS, (), "nsqd HTTP address (may be repeated)"),
    utility.LOOKUPD_HTTP,
    utility.CONNECT_TIMEOUT,
    utility.REQUEST_TIMEOUT,
)

HEADING = (
    "------rate------+----------------depth----------------+--------------metadata---------------\n"
    f"{'ingress':>7} {'egress':>7} | {'total':>7} {'mem':>7} {'disk':>7} {'inflt':>5} {'def':>5} | "
    f"{'req':>7} {'t-o':>7} {'msgs':>12} {'clients':>7}"
)


class ChannelSum(NamedTuple):
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    message_count: int = 0
    client_count: int = 0

    def plus(self, row: dict[str, Any]) -> ChannelSum:
        return ChannelSum(*(getattr(self, name) + row[name] for name in self._fields))


def row_text(now: ChannelSum, before: ChannelSum, interval_s: float) -> str:
    came = now.message_count - before.message_count
    left = came - (now.depth - before.depth)
    return (
        f"{int(came / interval_s):7d} {int(left / interval_s):7d} | "
        f"{now.depth:7d} {now.depth - now.backend_depth:7d} {now.backend_depth:7d} "
        f"{now.in_flight_count:5d} {now.deferred_count:5d} | {now.requeue_count:7d} "
        f"{now.timeout_count:7d} {now.message_count:12d} {now.client_count:7d}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    return utility.run_utility(PROGRAM, FLAGS, argv, _check, _main)


def _check(values: Values) -> None:
    utility.need_names("topic", values["topic"])
    utility.need_names("channel", values["channel"])
    if values["interval_ns"] <= 0:
        raise WrongUse("--interval must be positive")
    count = values["count"]
    if count and not (count.isascii() and count.isdigit()):
        raise WrongUse(f"--count {count!r}: must be a number, 0 or more")
    utility.need_source(values, "nsqd_http_address")


async def _main(values: Values, stop: asyncio.Event) -> int:
    fetcher = Fetcher(
        values["http_client_connect_timeout_ns"], values["http_client_request_timeout_ns"]
    )
    rows_left = int(values["count"]) if values["count"] else -1
    interval_s = values["interval_ns"] / limits.SECOND
    shown = 0
    try:
        before = await _sum(fetcher, values)
        while shown != rows_left and await utility.pause(stop, interval_s):
            now = await _sum(fetcher, values)
            if shown % HEADING_EVERY_ROWS == 0:
                print(HEADING)
            print(row_text(now, before, interval_s), flush=True)
            before = now
            shown += 1
    finally:
        await fetcher.close()
    return 0


async def _sum(fetcher: Fetcher, values: Values) -> ChannelSum:
    """Raises PenstockError when no nsqd has the channel."""
    topic, channel = values["topic"], values["channel"]
    addresses = await _addresses(fetcher, values)
    path = target("/stats", stats_query(topic, channel))
    urls = [f"http://{address}{path}" for address in addresses]
    total, found = ChannelSum(), False
    for document in await asyncio.gather(*map(fetcher.get_json, urls), return_exceptions=True):
        if isinstance(document, FetchFailed):
            print(f"{PROGRAM}: {document}", file=sys.stderr)
            continue
        if isinstance(document, BaseException):
            raise document
        for topic_row in document["topics"] or ():
            for row in topic_row["channels"]:
                total, found = total.plus(row), True
    if not found:
        raise PenstockError(f"no nsqd has channel {channel} of topic {topic}")
    return total


async def _addresses(fetcher: Fetcher, values: Values) -> list[str]:
    if values["nsqd_http_address"]:
        return list(values["nsqd_http_address"])
    found: set[str] = set()
    for lookupd in values["lookupd_http_address"]:
        url = f"http://{lookupd}{target('/lookup', {'topic': values['topic']})}"
        try:
            document = await fetcher.get_json(url)
        except FetchFailed as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            continue
        for producer in document["producers"]:
            if producer["http_port"] <= 0:
                continue  # one that serves HTTP on a unix socket, or not at all
            found.add(f"{bracketed(producer['broadcast_address'])}:{producer['http_port']}")
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
