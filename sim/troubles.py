"""Trouble at random times: each kind as often as a history likes it."""

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from penstock.limits import SECOND

T = TypeVar("T")
COUNTS = range(4, 25)  # of troubles in a history


class Kind(NamedTuple):
    weight: float
    scales: tuple[float, ...]  # one of them holds for a history


def draw_troubles(
    dice: random.Random, table: Mapping[T, Kind], seconds: float
) -> Iterator[tuple[int, T]]:
    """When, in nanoseconds from now, and what."""
    weights = [kind.weight * dice.choice(kind.scales) for kind in table.values()]
    kinds = dice.choices(list(table), weights, k=dice.randrange(COUNTS.start, COUNTS.stop))
    times = sorted(dice.randrange(int(seconds * SECOND)) for _ in kinds)
    return zip(times, kinds, strict=True)
