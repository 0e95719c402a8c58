"""What a consumer wants to see of a topic with headers: the kernel's form of IDENTIFY's ext_filter.

A rule looks at one header. Without `matches` it is equality, decided without a Python object; with
it, the value is handed over as text. A message without headers matches no rule. In one that has
headers, and not this one, the value is empty.

What does not pass is finished for the channel, as what sampling leaves out is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Rule(NamedTuple):
    name: bytes  # of the header, in UTF-8
    value: bytes = b""  # which it is to have
    matches: Callable[[str], bool] | None = None


class Filter(NamedTuple):
    rules: tuple[Rule, ...]  # one at least
    every: bool = False  # are all to match? Else one is enough
    inverse: bool = False  # what does not match passes
