"""`penstock trace`: the timeline of a message, from the events in topic `_trace`.

The events are read from the logs of the nodes, over HTTP, as nsqadmin reads them (`traces`), or
from a data directory without a daemon. A search begins where the message's id says that it was
made, and looks at a bounded part of the log.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated

from penstock import limits
from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.log.disk import OsDisk
from penstock.log.inspect import NothingThere, dump_partition
from penstock.log.inspect import find as find_in_data
from penstock.nsqadmin import traces
from penstock.nsqadmin.messages import InputInvalid
from penstock.nsqadmin.traces import Seeker, TracedEvent, Wanted
from penstock.tools import completion
from penstock.tools.app import Partition, app, arg, opt, verb
from penstock.tools.connection import Http
from penstock.tools.definitions import NodeUpstream
from penstock.tools.output import DONE, FAILED, Output, WrongUse, when
from penstock.trace.events import TOPIC, Event
from penstock.trace.search import Only, Search, row_of

SEARCH_BYTES_MAX = 1 << 30  # of one node's log


@verb(app, "trace 0d2c6bf1a4c02000", "trace --trace-id 42 --json")
def trace(
    at: Http,
    message_id: Annotated[str, arg("MESSAGE_ID", "16 hex digits")] = "",
    trace_id: Annotated[
        str, opt("N", "all messages with this number, or W3C trace in 32 hex digits")
    ] = "",
    topic: Annotated[str, opt("T", "only in this topic", autocompletion=completion.topics)] = "",
    partition: Partition = None,
    since: Annotated[str, opt("TIME", "from then on (the id's time; a trace id: two hours)")] = "",
    data_path: Annotated[str, opt("PATH", "read this directory, without a daemon")] = "",
) -> Output:
    """What happened to a message, as a timeline."""
    wanted, only = _wanted(message_id, trace_id, since), Only(topic, partition)
    contexts, failures = dict[int, str](), list[str]()
    if data_path:
        search = Search(wanted.message_id, wanted.trace_id, only)
        search.feed(_cold_bodies(data_path, wanted.from_ms))
        found = traces.merged([("", event) for event in search.events()], ())
    else:
        upstream = NodeUpstream(at.where.tls())
        nodes = [node.address for node in at.members()]
        seeker = Seeker(upstream, nodes, (), wanted, only, SEARCH_BYTES_MAX)
        with terminal.Progress("searching"):
            asyncio.run(seeker.look_in_log())
            found, failures = seeker.found(), seeker.failures
            contexts = asyncio.run(traces.contexts(upstream, found, ()))
    if failures:
        print("\n".join(failures), file=sys.stderr)
    rows = [row_of(one.event, one.node, contexts.get(one.event.message_id, "")) for one in found]
    if found:
        return Output(rows, _timelines(found, contexts), FAILED if failures else DONE)
    nothing = "nothing is known of it: was it traced, and does `_trace` still hold that time?"
    return Output(rows, [nothing], FAILED)


def _wanted(message_id: str, trace_id: str, since: str) -> Wanted:
    if bool(message_id) == bool(trace_id):
        raise WrongUse("give a message id, or --trace-id")
    try:
        return traces.wanted(message_id or f"trace:{trace_id}", since)
    except InputInvalid as error:
        raise WrongUse(str(error)) from error


def _cold_bodies(path: str, from_ms: int) -> Iterator[bytes]:
    disk = OsDisk()
    try:
        directories = find_in_data(disk, path, TOPIC).directories
    except NothingThere as error:
        raise PenstockError(f"{path} holds no topic {TOPIC}") from error
    for directory in directories:
        for row in dump_partition(disk, directory):
            if "body" in row and row["timestamp_ns"] // limits.MS >= from_ms:
                yield row["body"]


# --- how it is shown ---


def _timelines(found: list[TracedEvent], contexts: Mapping[int, str]) -> Iterator[str]:
    """One for each message; each includes the events about ranges."""
    several = len({one.node for one in found}) > 1
    for message_id in dict.fromkeys(one.event.message_id for one in found):
        if not message_id:
            continue
        mine = [one for one in found if one.event.message_id in (0, message_id)]
        trace_id = max(one.event.trace_id for one in mine if one.event.message_id)
        known = f"  trace id {trace_id}" if trace_id else ""
        if message_id in contexts:
            known += f"  traceparent {contexts[message_id]}"
        yield f"message {message_id:016x}{known}"
        before_ns = mine[0].event.time_ns
        for one in mine:
            passed_ns, before_ns = one.event.time_ns - before_ns, one.event.time_ns
            node = f"  on {one.node}" if several else ""
            yield f"  {_line(one.event, passed_ns)}{node}"


def _line(event: Event, passed_ns: int) -> str:
    where = event.topic + (f"/{event.channel}" if event.channel else "")
    parts = [f"{when(event.time_ns)}  {_delta(passed_ns):>10}  {event.kind.label:<13} {where}"]
    of = f"partition {event.partition} " if event.partition else ""
    if event.message_id:
        parts.append(f"{of}offset {event.offset}")
    else:
        parts.append(f"{of}offsets {event.offset} to {event.offset + event.count - 1}")
    if event.attempts:
        parts.append(f"attempt {event.attempts}")
    if event.client:
        parts.append(terminal.printable(event.client))
    return "  ".join(parts)


def _delta(passed_ns: int) -> str:
    if passed_ns < limits.MS:
        return f"+{passed_ns / 1000:.0f}us"
    if passed_ns < limits.SECOND:
        return f"+{passed_ns / limits.MS:.1f}ms"
    return f"+{passed_ns / limits.SECOND:.3f}s"
