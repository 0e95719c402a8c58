"""Consumers of topics with headers: who may be one, and what its connection is told.

On a topic without headers a tag and a filter mean nothing: they are left aside, and the consumer
gets all. A filter there would finish every message unseen. An envelope says what there is, so a
consumer that asks for it is right on any topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote

if TYPE_CHECKING:
    from penstock.broker.topic import Topic
    from penstock.nsqd.session import Session


def check_consumer(session: Session, topic: Topic, command: bytes, extend_must: bool) -> None:
    """Before anything is made or changed for it. Raises WireFault."""
    settings = session.settings
    if settings.extend_support and not topic.extended:
        raise WireFault(Fault.SUB_EXTEND_FORBIDDEN, command, quote(topic.name.encode()))
    if topic.extended and extend_must and not (settings.extend_support or settings.envelope):
        raise WireFault(Fault.SUB_EXTEND_NEED, command, quote(topic.name.encode()))


def check_new_topic(session: Session, name: bytes, command: bytes) -> None:
    """A consumer's topic is about to be made, without headers. Raises WireFault."""
    if session.settings.extend_support:
        raise WireFault(Fault.SUB_EXTEND_FORBIDDEN, command, quote(name))


def prepare_consumer(session: Session, topic: Topic) -> None:
    """Before its connection subscribes."""
    conn, settings = session.conn, session.settings
    conn.extended = settings.extend_support
    conn.enveloped = settings.envelope
    conn.tag = settings.desired_tag.encode() if topic.extended else b""
    conn.set_filter(session.filter if topic.extended else None)
