"""The parameters of an idempotent publish over HTTP, and its answers.

`producer_id` (1 to 2^64 - 1), `sequence` (of the first message; the first of an epoch is 0) and
`producer_epoch` (0 when it is not said) come with `/pub` or `/mpub`. Whoever gives one of them
means an idempotent publish: half of a stamp is refused, not taken as an ordinary publish.
"""

from __future__ import annotations

import json
import struct

from penstock.broker.stamped import SEQUENCE_END_MAX, Stamp
from penstock.errors import ProducerFenced, SequenceGap
from penstock.kernel import Pack
from penstock.net.api import OK, HttpError, Parameters, error_response
from penstock.net.exchange import Response

_NAMES = frozenset(("producer_id", "producer_epoch", "sequence"))
_DIGITS_MAX = 20  # of 2^64 - 1
_read_size = struct.Struct(">I").unpack_from


def marked_repeated(response: Response) -> Response:
    return response._replace(headers=(*response.headers, ("X-Penstock-Repeated", "true")))


REPEATED = marked_repeated(OK)


def is_stamped(parameters: Parameters) -> bool:
    return not _NAMES.isdisjoint(parameters)


def stamp_of(parameters: Parameters) -> Stamp:
    producer_id = _number(parameters, "producer_id", 1, (1 << 64) - 1)
    sequence = _number(parameters, "sequence", 0, SEQUENCE_END_MAX - 1)
    epoch = 0
    if "producer_epoch" in parameters:
        epoch = _number(parameters, "producer_epoch", 0, (1 << 16) - 1)
    return Stamp(producer_id, epoch, sequence)


def _number(parameters: Parameters, name: str, least: int, most: int) -> int:
    text = parameters.get(name)
    if text is None:
        raise HttpError(400, f"MISSING_ARG_{name.upper()}")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise HttpError(400, f"INVALID_{name.upper()}")
    number = int(text)
    if not least <= number <= most:
        raise HttpError(400, f"INVALID_{name.upper()}")
    return number


def conflict(error: SequenceGap | ProducerFenced) -> Response:
    """409, with what would have been right."""
    if isinstance(error, SequenceGap):
        response = error_response(HttpError(409, "SEQUENCE_GAP"))
        document = {"message": "SEQUENCE_GAP", "expected": error.expected}
    else:
        response = error_response(HttpError(409, "PRODUCER_FENCED"))
        document = {"message": "PRODUCER_FENCED", "epoch": error.epoch}
    return response._replace(body=json.dumps(document, separators=(",", ":")).encode())


def not_taken(error: HttpError) -> Response:
    """Refused before anything was written: the producer need not wonder whether it is stored."""
    return error_response(HttpError(error.status, error.code, details={"taken": False}))


def pack_bodies(pack: Pack, body: bytes) -> list[bytes]:
    """The messages of a pack that was found sound (`Tail.count_pack`)."""
    if pack is Pack.LINES:
        return [line for line in body.split(b"\n") if line]
    bodies = []
    position = 4
    for _ in range(_read_size(body)[0]):
        start = position + 4
        position = start + _read_size(body, position)[0]
        bodies.append(body[start:position])
    return bodies
