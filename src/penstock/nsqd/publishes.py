"""What all publishes over HTTP have in common: delays, the numbers of a producer, and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock import limits
from penstock.broker.rows import PublishDone, Sections
from penstock.broker.topic import Topic
from penstock.broker.traced import Stored
from penstock.errors import PenstockError, ProducerFenced, Refused, SequenceGap
from penstock.net.api import OK, Answer, HttpError, Parameters, error_response
from penstock.net.exchange import Response
from penstock.nsqd.ground import Ground, unavailable
from penstock.nsqd.stamps import REPEATED, conflict, not_taken, stamp_of

_DIGITS_MAX = 19  # of a delay; more would not fit a 64-bit number

Said = Callable[[Stored | None], Response]  # None: it was stored before


def due_ns_of(ground: Ground, parameters: Parameters) -> int:
    """When a message is due that asks for a delay of `defer` milliseconds; 0: at once. Raises
    HttpError."""
    if "defer" not in parameters:
        return 0
    text = parameters["defer"]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise HttpError(400, "INVALID_DEFER")
    delay_ns = int(text) * limits.MS
    if not 0 <= delay_ns <= ground.options.max_req_timeout_ns:
        raise HttpError(400, "INVALID_DEFER")
    return ground.clock.wall_ns() + delay_ns if delay_ns else 0


def answering(ground: Ground, answer: Answer) -> PublishDone:
    def done(error: PenstockError | None) -> None:
        if error is None:
            answer(OK)
        else:
            ground.refusals.count += 1
            answer(error_response(unavailable(error)))

    return done


def just_ok(where: Stored | None) -> Response:
    return OK if where else REPEATED


def publish_stamped(
    ground: Ground,
    topic: Topic,
    bodies: list[bytes],
    parameters: Parameters,
    answer: Answer,
    said: Said = just_ok,
    sections: Sequence[Sections] = (),
) -> None:
    """Of a producer that numbers its messages. Raises HttpError."""
    stamp = stamp_of(parameters)
    due_ns = due_ns_of(ground, parameters)

    def done(error: PenstockError | None, where: Stored | None) -> None:
        if error is None:
            answer(said(where))
        else:
            ground.refusals.count += 1
            answer(error_response(unavailable(error)))

    try:
        topic.publish_stamped(stamp, bodies, due_ns, done, sections)
    except (SequenceGap, ProducerFenced) as error:
        ground.refusals.count += 1
        answer(conflict(error))
    except Refused as error:
        ground.refusals.count += 1
        answer(not_taken(unavailable(error)))
    ground.soon()
