"""The rules of a cluster that no commit depends on, each with a switch that only a simulator turns.

Without them nothing is lost; but partitions stay without a leader, or records change without end.
`sim.timed` shows for each of them what happens without it.
"""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    absence_waits: bool = True  # for the time of a lease, after an outage of the coordinator
    lives_compared: bool = True  # a process that was started again is not the one in office
    refusals_witnessed: bool = True  # by two nodes
    barren_office_given_up: bool = True  # in which nothing can be committed
    readmission_waits: bool = True  # of a node that was dropped
    sound_first: bool = True  # a corrupt replica leads only where no sound one can
    lease_kept_by_loop: bool = True  # else by a thread that lives while the loop hangs


ALL = Rules()
