"""Topics that Penstock keeps for itself, beside those of its users.

- `_trace`: events about traced messages (`broker/trace.py`). Only nsqd publishes to it.
- `_pipelines`: what runs of pipelines say of themselves (`pipelines/runs.py`). They publish to it
  as anybody publishes to a topic, and so make it.

Both are ordinary topics but for this:

- They are not registered with nsqlookupd, and a pattern of names passes over them.
- They are not traced, and no sweep of idle topics takes them away.
- They keep no queue while they have no channel: a channel made later begins at the end. What no
  channel wants is kept for a time and size of their own.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.settings import TopicSettings
from penstock.trace import events as traceevents

TRACE = traceevents.TOPIC
PIPELINES = "_pipelines"

SETTINGS = {
    TRACE: TopicSettings(
        durability="os",
        retain_age_ns=limits.TRACE_RETAIN_AGE_NS,
        retain_bytes=limits.TRACE_RETAIN_BYTES,
    ),
    PIPELINES: TopicSettings(
        retain_age_ns=limits.RUNS_RETAIN_AGE_NS,
        retain_bytes=limits.RUNS_RETAIN_BYTES,
    ),
}


def is_internal(name: str) -> bool:
    return name in SETTINGS


def settings_of(name: str, registered: bool = False) -> TopicSettings:
    """With which a topic of that name is made. `registered`: consumers may make no channels."""
    return SETTINGS.get(name) or TopicSettings(disable_channel_auto_create=registered or None)
