"""The rules of commits over several leaders, each with a switch that only tests turn.

As in `penstock.replica.safeguards`: a rule that no history misses is superfluous or untested.
"""

from __future__ import annotations

from typing import NamedTuple


class Safeguards(NamedTuple):
    parts_marked: bool = True  # else a new leader does not see how far a part has come
    visible_outside_parts: bool = True  # else the visible end is the committed one
    whole_before_done: bool = True  # done means that the set has all of it, not the leader alone
    pinned_stages_kept: bool = True  # a stage does not expire while a commit may name it
    identities_compared: bool = True  # by the decision: the topics are those that were prepared
    prepare_compared: bool = True  # by the decision: its key is there, so the pins are, too
    version_compared: bool = True  # by the decision: the app's record is as it was read
    pins_with_set: bool = True  # a leader's promise is with its set before it is given
    unknown_settled_by_change: bool = True  # else by a read
    stored_in_order: bool = True  # of the decisions
    nothing_between: bool = True  # the batches of a part
    later_view_only: bool = True  # a view from before the prepare key says nothing of its end


ALL = Safeguards()
