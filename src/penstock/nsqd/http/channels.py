"""Operators' requests about channels; docs/http.md has their arguments and answers.

Rates and limits of clients hold until the next start, as in Youzan's nsqd. Its switches for traces
set `trace_rate`, and so last through a restart here.
"""

from collections.abc import Callable
from functools import partial

from penstock import limits
from penstock.broker import changes
from penstock.broker.channels.skips import Skipped
from penstock.broker.ports import MetadataDone
from penstock.broker.topics.settings import ChannelOrder
from penstock.errors import NotFound, PenstockError, Refused
from penstock.net.api import EMPTY, HttpError, error_response, json_response
from penstock.net.exchange import Response
from penstock.nsqd.http import settings
from penstock.nsqd.http.arguments import invalid, message_id, names_of
from penstock.nsqd.http.deps import Ask, Call, reason_of, unavailable

# --- verbs ---


def create(call: Call) -> None:
    """In a cluster the answer waits until every partition has confirmed the channel, whoever leads
    it by then."""
    topic, name = call.channel_name()
    leaders = topic.leaders if topic.metadata is None else ()

    def go_on(error: PenstockError | None) -> None:
        if error is not None:
            raise unavailable(error)
        topic.channel(name)
        call.answer_when_held(leaders, EMPTY)

    changes.ask_for_channel(topic, name, lambda error: call.go_on(lambda: go_on(error)))


def delete(call: Call, done: MetadataDone) -> None:
    channel = call.channel(checks_names=True)
    changes.delete_channel(channel.topic, channel.name, done)


def empty(call: Call) -> Response:
    call.channel(checks_names=True).empty()
    return EMPTY


def pause(paused: bool, call: Call, done: MetadataDone) -> None:
    changes.pause_channel(call.channel(checks_names=True), paused, done)


def skip(change: Callable[[Skipped, int, int], Skipped], call: Call, done: MetadataDone) -> None:
    channel = call.channel(checks_names=True)
    partition = call.partition(channel.topic)
    count = channel.topic.partition_count
    changes.skip(channel, lambda before: change(before, partition, count), done)


def skip_tests(on: bool) -> Ask:
    """In all partitions: a load test uses the whole topic."""
    return partial(skip, lambda before, *_: before._replace(tests=on))


# --- bounds ---


def limit_rate(call: Call) -> Response:
    """0 removes the limit."""
    channel = call.channel()
    highest = limits.RATE_KILOBYTES_MAX
    rate = call.number("ratekilobytes", highest, None) * limits.KIB
    channel.rate.set(rate, call.deps.clock.mono_ns())
    return json_response({**names_of(channel), "bytes_per_second": rate})


def limit_clients(call: Call) -> Response:
    """Clients whose client id or address begins with this; without a prefix all. 0 removes the
    limit."""
    channel = call.channel()
    ready = call.number("ready", call.deps.options.max_rdy_count, None)
    prefix = call.parameters.get("client_prefix", "")
    count = 0
    for conn in channel.consumers:
        session = conn.owner
        if session.settings.client_id.startswith(prefix) or session.remote.startswith(prefix):
            conn.rdy_limit = ready
            count += 1
    return json_response({**names_of(channel), "clients": count})


# --- settings ---


def redrive(call: Call) -> None:
    channel = call.channel(anywhere=True)
    count_max = call.number("count")
    id = message_id(call.parameters["id"]) if call.parameters.get("id") else None

    def done(count: int, error: PenstockError | None) -> None:
        if error is not None:
            code = f"FAILED after {count} messages: {reason_of(error)}"
            details = unavailable(error).details
            call.answer(error_response(HttpError(503, code, details=details)))
        else:
            call.answer(json_response({"redriven": count}))

    try:
        call.deps.broker.dead_letters.redrive(channel, count_max, done, id)
    except NotFound:
        call.answer(json_response({"redriven": 0}))  # there never was a dead letter
    except Refused as error:
        raise HttpError(409, f"FAILED {error.reason}") from error
    call.deps.soon()


def set_order(call: Call, done: MetadataDone) -> None:
    """Youzan's: strict order, or none."""
    channel = call.channel()
    text = call.parameters.get("order", "")
    if text not in ("true", "false"):
        raise invalid("order", text, "it is true or false")
    order = ChannelOrder.STRICT if text == "true" else ChannelOrder.NONE
    changes.configure_channel(channel, {"order": order}, done)


def set_trace(on: bool, call: Call, done: MetadataDone) -> None:
    text = call.parameters.get("rate", "1") if on else "0"
    known = ("channel", "rate", "topic")
    unknown = sorted(set(call.parameters).difference(known))
    if unknown:
        raise HttpError(400, f"INVALID_ARG {unknown[0]}: there are {', '.join(known)}")
    try:
        rate = settings.read_rate(text)
    except ValueError as error:
        raise invalid("rate", text, error, None) from error
    if "channel" in call.parameters:
        changes.configure_channel(call.channel(), {"trace_rate": rate}, done)
    else:
        changes.configure_topic(call.topic(), {"trace_rate": rate}, done)


def configure(call: Call, done: MetadataDone) -> None:
    channel = call.channel()
    wanted = settings.read_settings(call.parameters, settings.CHANNEL, ("topic", "channel"))
    try:
        channel.check(wanted)
    except Refused as error:
        raise HttpError(400, f"INVALID_ARG {error.reason}") from error
    changes.configure_channel(channel, wanted, done)


def configuration(call: Call) -> Response:
    """The effective settings, and in `own` those that the channel has chosen itself."""
    channel = call.channel()
    return json_response(
        {
            **names_of(channel),
            **settings.channel_values(channel),
            "dead_letter_count": channel.dead_letter_count,
            "held_count": channel.held,
            "own": list(settings.own_of_channel(channel)),
        }
    )
