"""What comes back through the interface: of this form, or refused.

The interface speaks of any tail, window or connection; an engine knows its own alone. The compiled
form refuses another form's likewise, when it takes its arguments apart.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def narrow(thing: object, kind: type[T]) -> T:
    """`thing`, which has to be a `kind`. TypeError for anything else."""
    if not isinstance(thing, kind):
        raise TypeError(f"{type(thing).__name__} is no {kind.__name__} of the pure kernel")
    return thing
