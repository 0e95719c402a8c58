"""What became of a message in a channel: its fate, and how long it waited.

finished    a consumer has done it
ended       dead-lettered, skipped, filtered, emptied, corrupt: it will not be sent any more
delayed     it waits until its time comes
out         a consumer has it
back        it was given back, and waits to be sent again
unsent      it was not sent yet
"""

from __future__ import annotations

import numpy as np

from penstock.pipelines.lifecycles.events import Numbers
from penstock.pipelines.lifecycles.lives import last_state

FATES = ("finished", "ended", "delayed", "out", "back", "unsent")
FINISHED, ENDED, DELAYED, OUT, BACK, UNSENT = range(len(FATES))
_OF_STATE = np.array([UNSENT, OUT, DELAYED, BACK])  # by what the last step left it in
WAITS = {
    "first_sent": ("published", "first_sent"),
    "handling": ("first_sent", "finished"),
    "total": ("published", "finished"),
}


def fates(lives: Numbers, in_range: Numbers) -> Numbers:
    """`in_range`: those that met an end with many others at once (`ranges`)."""
    found = _OF_STATE[last_state(lives["last_step"])]
    found[(lives["endings"] > 0) | in_range] = ENDED
    found[lives["finishes"] > 0] = FINISHED
    return found
