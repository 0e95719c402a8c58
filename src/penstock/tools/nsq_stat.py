"""`nsq_stat`: rates and depths of one channel, summed over all nsqds that have its topic.

Ingress is what the channel was given per second, egress what left its depth.
"""

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import Mapping

from penstock import limits
from penstock.command.flags import Flag, Kind
from penstock.errors import PenstockError
from penstock.nsqadmin.upstream import NSQD, Upstream
from penstock.nsqdapi.calls import stats_query
from penstock.tools import utility
from penstock.tools.output import WrongUse
from penstock.tools.utility import Values

PROGRAM = "nsq_stat"
HEADING_EVERY_ROWS = 25

FLAGS = (
    utility.VERSION,
    utility.TOPIC,
    Flag("channel", Kind.STRING, "", "NSQ channel"),
    Flag("interval", Kind.DURATION, 2 * limits.SECOND, "time between rows", bounds=(1, None)),
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


# Of a channel in /stats: each is summed.
FIELDS = ("depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
          "timeout_count", "message_count", "client_count")  # fmt: skip


def row_text(now: Mapping[str, int], before: Mapping[str, int], interval_s: float) -> str:
    depth, disk, in_flight, deferred, *others = (now[name] for name in FIELDS)
    requeues, timeouts, messages, clients = others
    came = messages - before["message_count"]
    left = came - (depth - before["depth"])
    return (
        f"{int(came / interval_s):7d} {int(left / interval_s):7d} | "
        f"{depth:7d} {depth - disk:7d} {disk:7d} {in_flight:5d} {deferred:5d} | "
        f"{requeues:7d} {timeouts:7d} {messages:12d} {clients:7d}"
    )


def _check(values: Values) -> None:
    utility.need_names("topic", values["topic"])
    utility.need_names("channel", values["channel"])
    count = values["count"]
    if count and not (count.isascii() and count.isdigit()):
        raise WrongUse(f"--count {count!r}: must be a number, 0 or more")
    utility.need_source(values, "nsqd_http_address")


async def _main(values: Values, stop: asyncio.Event) -> None:
    rows = range(int(values["count"])) if values["count"] else itertools.count()
    interval_s = values["interval_ns"] / limits.SECOND
    async with utility.fetching(values) as fetcher:
        upstream = Upstream(fetcher, values["lookupd_http_address"], values["nsqd_http_address"])
        before = await _sum(upstream, values)
        for row in rows:
            if not await utility.pause(stop, interval_s):
                break
            now = await _sum(upstream, values)
            if row % HEADING_EVERY_ROWS == 0:
                print(HEADING)
            print(row_text(now, before, interval_s), flush=True)
            before = now


async def _sum(upstream: Upstream, values: Values) -> Mapping[str, int]:
    """Raises PenstockError when no nsqd has the channel."""
    topic, channel = values["topic"], values["channel"]
    addresses, warning = values["nsqd_http_address"], ""
    if upstream.lookupds:
        having, warning = await upstream.producers_of(topic)
        addresses = [one.address for one in having if one.http_port > 0]  # not on a unix socket
    query = stats_query(topic, channel)

    async def of_node(address: str) -> Counter[str]:
        found = Counter[str]()
        for topic_row in (await upstream.document(address, "/stats", query))["topics"] or ():
            for row in topic_row["channels"]:
                found.update({name: row[name] for name in FIELDS})
        return found

    asked = await upstream.ask(NSQD, addresses, of_node)
    for text in filter(None, (warning, *asked.errors)):
        print(f"{PROGRAM}: {text}", file=sys.stderr)
    total = Counter[str]()
    for found in asked.answers.values():
        total.update(found)
    if not total:
        raise PenstockError(f"no nsqd has channel {channel} of topic {topic}")
    return total


main = utility.entry(PROGRAM, FLAGS, _check, _main)
