"""What is drawn for a message of a sampled consumer: 0 to 99.

A draw is a function of the engine's seed, the connection, the message and its attempts: so a
history can be played again, and it does not matter in which order consumers are served. The
engine's seed is passed in, as the time is; a daemon draws one when it starts.

`mix` is the end of splitmix64, which spreads numbers that differ in few bits over all numbers.
Serials and attempts go through it by themselves first: else the next message's first attempt would
draw what this one's second drew.
"""

from __future__ import annotations

SAMPLE_DRAWS = 100
_GOLDEN = 0x9E3779B97F4A7C15  # the odd number next to 2**64 over the golden ratio, as in splitmix64
_U64 = (1 << 64) - 1


def mix(number: int) -> int:
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _U64
    return number ^ (number >> 31)


def sample_draw(seed: int, serial: int, id: int, attempts: int) -> int:
    """`attempts`: those that the message has had before."""
    stream = mix((seed + _GOLDEN * ((attempts << 32) + serial)) & _U64)
    return mix(stream ^ id) % SAMPLE_DRAWS
