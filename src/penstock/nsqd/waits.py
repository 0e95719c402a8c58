"""The waits of a V2 command: for its body, a topic in creation, an auth server, the other replicas
of a partition.

The connection stands still meanwhile: no command is read before the one in hand is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.changes import ask_for_channel
from penstock.broker.ports import MetadataDone
from penstock.errors import AuthFailed, ChannelUnconfirmed, PenstockError
from penstock.nsqd.auth import Grant, applicant
from penstock.nsqd.session import Session
from penstock.wire.errors import Fault, WireFault, failed
from penstock.wire.names import quote

if TYPE_CHECKING:
    from penstock.broker.topics.topic import Topic
    from penstock.nsqd.auth import Auth
    from penstock.nsqd.topics import Found, TopicMaker

log = logging.getLogger("penstock.nsqd")


T = TypeVar("T")
Guard = Callable[..., None]  # session, act, *arguments: runs `act`, and answers with its error
Act = Callable[[], None]
WithTopic = Callable[["Topic"], None]
Take = Callable[[Session, bytes], None]  # of a body
Ask = Callable[[MetadataDone], None]  # it is given what it is to call: at once, or later


class Waits:
    def __init__(self, topics: TopicMaker, auth: Auth, guard: Guard) -> None:
        self._topics = topics
        self._auth = auth
        self._guard = guard

    def resume(self, session: Session) -> None:
        if session.awaits is None and not session.waits:
            session.conn.resume()

    def pause(self, session: Session) -> Callable[[Act], None]:
        """No command is read until the returned function is called, with the next step."""

        def act_and_resume(session: Session, act: Act) -> None:
            act()
            self.resume(session)

        def go_on(act: Act) -> None:
            session.waits = False
            if not session.gone:
                self._guard(session, act_and_resume, act)

        session.waits = True
        return go_on

    def partitions_if_new(self, topic: bytes) -> int:
        return self._topics.partitions_if_new(topic.decode("ascii"))

    def with_topic(self, session: Session, name: bytes, fault: Fault, act: WithTopic) -> None:
        """Call `act` with the topic, now or once it exists."""

        def act_or_fail(found: Found) -> None:
            if isinstance(found, PenstockError):
                raise failed(fault, found) from found
            _act(fault, partial(act, found))

        self._until(session, partial(self._topics.topic, name.decode("ascii")), act_or_fail)

    def with_channel(
        self, session: Session, topic: Topic, name: str, fault: Fault, act: Act
    ) -> None:
        """Call `act` when the channel exists or may be created here: at once, except in a cluster.
        Where partitions have not confirmed it in time, the client continues with the others: it
        would wait for as long as they have no leader."""

        def act_or_fail(error: PenstockError | None) -> None:
            if isinstance(error, ChannelUnconfirmed):
                log.warning("PROTOCOL(V2): [%s] %s", session.remote, error)
            elif error is not None:
                raise failed(fault, error) from error
            _act(fault, act)

        self._until(session, partial(ask_for_channel, topic, name), act_or_fail)

    def until(self, session: Session, fault: Fault, ask: Ask, act: Act) -> None:
        """Call `act` when the request is done: at once, on a single node."""

        def act_or_fail(error: PenstockError | None) -> None:
            if error is not None:
                raise failed(fault, error) from error
            act()

        self._until(session, ask, act_or_fail)

    def _until(
        self, session: Session, ask: Callable[[Callable[[T], None]], None],
        act_or_fail: Callable[[T], None],
    ) -> None:  # fmt: skip
        """`ask` is given what it is to call with the outcome: at once, or later."""
        outcomes: list[T] = []
        report: Callable[[T], None] = outcomes.append
        ask(lambda outcome: report(outcome))
        if outcomes:
            act_or_fail(outcomes[0])
            return
        go_on = self.pause(session)

        def report_later(outcome: T) -> None:
            go_on(lambda: act_or_fail(outcome))

        report = report_later

    def read_body(self, session: Session, command: bytes, size_max: int, take: Take) -> None:
        session.awaits = take
        session.body_command = command
        session.body_bytes_max = size_max
        session.conn.read_body(size_max)

    def ask_auth(self, session: Session, act: Callable[[Grant], None]) -> None:
        def take(found: Grant | AuthFailed) -> None:
            if isinstance(found, AuthFailed):
                # Only the log says why: what is known of the servers is not for strangers.
                log.warning("PROTOCOL(V2): [%s] AUTH failed %s", session.remote, found)
                raise WireFault(Fault.AUTH_FAILED)
            session.set_grant(found)
            act(found)

        go_on = self.pause(session)
        self._auth.ask(applicant(session), lambda found: go_on(lambda: take(found)))

    def with_leave(
        self, session: Session, command: bytes, topic: bytes, channel: bytes, act: Act
    ) -> None:
        """Call `act` if the client has permission, now or once an auth server has answered. Without
        a channel it wants to publish."""

        def check(grant: Grant) -> None:
            if not grant.allows(topic.decode("ascii"), channel.decode("ascii")):
                raise WireFault(Fault.AUTH_DENIED, command, quote(topic), quote(channel))
            act()

        if not self._auth.required:
            act()
        elif session.grant is None or not session.grant.entries:
            raise WireFault(Fault.AUTH_FIRST, command)
        elif session.grant_has_ended:
            self.ask_auth(session, check)
        else:
            check(session.grant)


def _act(fault: Fault, act: Act) -> None:
    try:
        act()
    except WireFault:
        raise
    except PenstockError as error:
        raise failed(fault, error) from error
