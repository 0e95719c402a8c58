"""Each safeguard taken away, and within how many histories that is noticed.

`seeds_max` is what a test holds true; eight other first seeds were tried with each number that had
been close. `focus` makes the events come more often that the breach
needs. With `reckless` more is lost than can be survived: what is checked then is that it is said.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.replica.safeguards import ALL, Safeguards
from sim.protocol.histories import Found, find
from sim.protocol.world import Focus

_ELECTIONS: Focus = (("elect", 3), ("cut_link", 3), ("mend_link", 2), ("publish", 2))


class Switch(NamedTuple):
    off: str
    seeds_max: int
    focus: Focus = ()
    reckless: bool = False

    def guards(self) -> Safeguards:
        return ALL._replace(**{self.off: False})

    def find(self, first: int = 0) -> Found | None:
        return find(first, self.seeds_max, self.guards(), self.reckless, self.focus)

    def held(self, first: int = 0) -> Found | None:
        """What is found in the same histories with the rule in its place."""
        return find(first, self.seeds_max, ALL, self.reckless, self.focus)


SWITCHES = (
    Switch("restart_ends_office", 50),
    Switch("failure_ends_office", 300),
    Switch("epoch_saved_first", 50),
    Switch("epoch_saved", 50),
    Switch("lower_epoch_refused", 800),
    Switch("older_record_refused", 1_500),
    Switch("written_before_sent", 500),
    Switch("synced_before_acknowledged", 50),
    Switch("own_sync_awaited", 100),
    Switch("chain_compared", 6_000, (("rot", 5),)),
    Switch("matched_first", 50),
    Switch("acknowledgements_end_with_link", 300),
    Switch("sessions_compared", 8_000, (("deliver_late", 5), ("cut_link", 3), ("mend_link", 2))),
    Switch("matched_by_epochs", 50),
    Switch("matched_by_all_epochs", 2_000, _ELECTIONS),
    Switch("crc_compared", 600, (("rot", 5), ("isolate", 3))),
    Switch("committed_end_matched", 500),
    Switch("cut_truncates", 50),
    Switch("cut_synced", 50),
    Switch("cut_above_committed", 1_500, (("recover", 6),), reckless=True),
    Switch("learners_not_counted", 50),
    Switch("counted_by_replica", 50),
    Switch("level_at_epoch_start", 5_000, _ELECTIONS),
    Switch("shrunk_by_coordinator", 200),
    Switch("counted_from_proposal", 50),
    Switch("unknown_settled_by_change", 3_000, (("lose_transaction", 4),)),
    Switch("all_possible_sets_needed", 50),
    Switch("revision_compared", 50),
    Switch("generation_compared", 600),
    Switch("members_only", 50),
    Switch("suspects_refused", 2_000, (("lose_power", 3),)),
    Switch("all_reports_awaited", 4_000, (("elect_last", 10), ("lose_power", 2))),
    Switch("generation_written_first", 500),
    Switch("empty_is_new", 300, (("wipe", 4),)),
    Switch("old_generation_is_new", 5_000, (("roll_back", 4), ("back_up", 2))),
    Switch("headers_believed_in_sync_only", 8_000, (("lose_power", 4), ("start", 3))),
    Switch(
        "failed_sync_ends_replica",
        25_000,
        (("fail_sync", 5), ("lose_power", 3), ("repair", 2)),
    ),
)
