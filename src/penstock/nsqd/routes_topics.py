"""`/topic/config`: what one topic wants other than the daemon's options.

A GET tells, a POST changes the settings that are named in the query and tells too. An empty value
goes back to the daemon's option. Nothing is changed when one of the values is not valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.changes import configure_topic
from penstock.broker.options import DURABILITIES
from penstock.broker.ports import MetadataDone
from penstock.broker.topic import Topic
from penstock.durations import DURATION_NS_MAX, format_duration, parse_duration
from penstock.net.api import (
    GET_POST,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.nsqd.ground import FALSE, TRUE, Ground, agreeing, find_topic

COUNT_MAX = (1 << 63) - 1


def _durability(text: str) -> str:
    if text not in DURABILITIES:
        raise ValueError(f"one of {', '.join(DURABILITIES)}")
    return text


def _count(text: str) -> int:
    count = whole_number(text, COUNT_MAX)
    if count is None:
        raise ValueError(f"a whole number, 0 to {COUNT_MAX}")
    return count


def read_duration(text: str) -> int:
    duration_ns = parse_duration(text)
    if not 0 <= duration_ns <= DURATION_NS_MAX:
        raise ValueError("a duration such as 90s or 24h, not below 0")
    return duration_ns


def read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError("a number from 0 to 1")
    return rate


def _truth(text: str) -> bool:
    if text not in TRUE + FALSE:
        raise ValueError(f"one of {', '.join(TRUE + FALSE)}")
    return text in TRUE


# by the name in the query: the name in topic.json, and how a value is read
SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "durability": ("durability", _durability),
    "max_depth": ("max_depth", _count),
    "max_age": ("max_age_ns", read_duration),
    "retain_age": ("retain_age_ns", read_duration),
    "retain_bytes": ("retain_bytes", _count),
    "trace_rate": ("trace_rate", read_rate),
    "ordered": ("ordered", _truth),
    "disable_channel_auto_create": ("disable_channel_auto_create", _truth),
}


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    def change(parameters: Parameters, done: MetadataDone) -> None:
        topic = find_topic(ground, parameters)
        configure_topic(topic, _changes(parameters), done)

    def tell(parameters: Parameters) -> Response:
        return _tell(find_topic(ground, parameters))

    changed = agreeing(ground, guard, change, tell)

    def config(request: Request, answer: Answer) -> None:
        if request.method == "POST":
            changed(request, answer)
        else:
            answer(tell(parse_query(request.query)))

    return {"/topic/config": Route(GET_POST, config)}


def _changes(parameters: Parameters) -> dict[str, Any]:
    changes = {}
    for name, text in parameters.items():
        if name == "topic":
            continue
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise HttpError(400, f"INVALID_ARG {name[:100]}: no such setting; there are {known}")
        key, read = SETTINGS[name]
        try:
            changes[key] = read(text) if text else None
        except ValueError as error:
            raise HttpError(400, f"INVALID_ARG_{name.upper()} {text[:100]!r}: {error}") from error
    return changes


def _tell(topic: Topic) -> Response:
    """What holds, and by `own` which of it the topic has chosen itself."""
    holds = topic.effective._asdict() | {
        "durability": topic.durability,
        "ordered": bool(topic.settings.ordered),
        "disable_channel_auto_create": bool(topic.settings.disable_channel_auto_create),
    }
    row: dict[str, Any] = {"topic_name": topic.name}
    for name, (key, read) in SETTINGS.items():
        row[name] = format_duration(holds[key]) if read is read_duration else holds[key]
    chosen = [
        name for name, (key, _) in SETTINGS.items() if getattr(topic.settings, key) is not None
    ]
    return json_response(row | {"own": chosen} | _shape(topic))


def _shape(topic: Topic) -> dict[str, Any]:
    """Said where it is not that of a topic of NSQ: a row of settings is no place for what all
    topics are."""
    shape: dict[str, Any] = {}
    if topic.partition_count > 1:
        shape |= {"partitions": topic.partition_count, "hash_partitions": topic.hash_partitions}
    if topic.extended:
        shape["extended"] = True
    there = topic.metadata.shape(topic.name) if topic.metadata is not None else None
    if there is not None:
        shape["replicas"] = there.replicas
    return shape
