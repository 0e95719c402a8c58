"""The rules that keep replicas equal, each with a switch that only the simulator turns.

A rule that can be taken away without any history noticing is either superfluous or untested. So
each has a name here, the machines ask for it where they apply it, and the simulator shows for each
within how many histories its absence is found (`sim.protocol.switches`).
"""

from __future__ import annotations

from typing import NamedTuple


class Safeguards(NamedTuple):
    # offices
    restart_ends_office: bool = True  # else the record's node leads on in the old epoch
    failure_ends_office: bool = True  # of a write or a sync
    epoch_saved_first: bool = True  # before an office begins, and before a leader is answered
    epoch_saved: bool = True  # at all
    lower_epoch_refused: bool = True
    older_record_refused: bool = True  # than the one that the node remembers
    # rows
    written_before_sent: bool = True
    synced_before_acknowledged: bool = True
    own_sync_awaited: bool = True
    chain_compared: bool = True  # each row names the batch before it
    matched_first: bool = True  # before anything of an epoch or a session is appended
    acknowledgements_end_with_link: bool = True
    sessions_compared: bool = True  # a frame of an older session is dropped
    matched_by_epochs: bool = True  # else by ends
    matched_by_all_epochs: bool = True  # else by the follower's newest one
    crc_compared: bool = True  # of the last common batch
    committed_end_matched: bool = True  # a follower's is never beyond what was matched
    # cuts
    cut_truncates: bool = True
    cut_synced: bool = True
    cut_above_committed: bool = True  # else the replica cuts what it knows to be committed
    # sets
    learners_not_counted: bool = True
    counted_by_replica: bool = True  # else by node
    level_at_epoch_start: bool = True  # else a learner is level at the committed end
    shrunk_by_coordinator: bool = True  # else the leader commits without the member at once
    counted_from_proposal: bool = True  # a new member is needed before it may be in force
    unknown_settled_by_change: bool = True  # else by a read
    all_possible_sets_needed: bool = True  # else the newest only
    revision_compared: bool = True
    generation_compared: bool = True  # of the node that is added
    # elections
    members_only: bool = True
    suspects_refused: bool = True
    all_reports_awaited: bool = True  # where members are suspect; else the longest log leads
    generation_written_first: bool = True  # before a node that has started does anything
    # what a disk has
    empty_is_new: bool = True  # a directory that was wiped has another replica id
    old_generation_is_new: bool = True
    headers_believed_in_sync_only: bool = True
    failed_sync_ends_replica: bool = True


ALL = Safeguards()
