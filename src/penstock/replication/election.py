"""Who may lead: the members elect themselves, and each judges only itself.

All members hold everything that was committed, so any of them may lead. Preference and time decide
which of them proposes itself first, and the coordinator's comparison decides between several. A
candidate drops the members it cannot reach, as far as the record's minimum allows: otherwise the
first commit would have to wait for a second change of the record.

A member of a topic that does not wait for the disk (`os`) is **suspect** when its node has lost
memory since the member was added: it may lack what it acknowledged. If all members are suspect, and
all have reported, the one with the most leads (`last_resort`), and none is dropped. Only that
election may lose something; it loses nothing if any member has kept everything.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.log.epochs import Extent
from penstock.replication.record import LeaderId, Member, PartitionRecord, elected


class Candidate(NamedTuple):
    """A replica, as its own node knows it."""

    leader_id: LeaderId
    generation: int  # of the node
    written_generation: int  # as it stands in the coordinator
    memory_lost_generation: int  # the start that followed a loss of memory; 0: none has
    waits: bool  # the topic waits for the disk
    stopped: bool


def hindrance(record: PartitionRecord, candidate: Candidate) -> str | None:
    """Why this replica may not be elected; None where nothing speaks against it."""
    if candidate.stopped:
        return "it is stopped"
    if candidate.generation != candidate.written_generation:
        return "its node's start is not written yet"
    entry = record.member_on(candidate.leader_id.node)
    if entry is None or entry.replica != candidate.leader_id.replica:
        return "it is no member"
    if is_suspect(entry, candidate):
        return "its node has lost memory since it became a member"
    return None


def is_suspect(entry: Member, candidate: Candidate) -> bool:
    return not candidate.waits and entry.generation < candidate.memory_lost_generation


class MemberReport(NamedTuple):
    """The extent that a member's node reports."""

    entry: Member
    memory_lost_generation: int
    extent: Extent | None  # None: that replica is gone


def last_resort(record: PartitionRecord, reports: Sequence[MemberReport]) -> Member | None:
    """The new leader where all members are suspect or gone; None while one is intact, or silent."""
    lost = {one.entry: one.extent for one in reports if _has_lost(one)}
    left = [(entry, lost[entry]) for entry in record.members if lost.get(entry) is not None]
    if set(lost) != set(record.members) or not left:
        return None
    return max(left, key=lambda one: _amount(one[1]))[0]


def _has_lost(report: MemberReport) -> bool:
    return report.extent is None or report.entry.generation < report.memory_lost_generation


def _amount(extent: Extent | None) -> tuple[int, int]:
    if extent is None:
        return 0, 0
    return (extent.epochs[-1][0] if extent.epochs else 0), extent.end


def election(
    record: PartitionRecord, leader_id: LeaderId, unreachable: Collection[int]
) -> PartitionRecord:
    """The record in which this replica leads, without unreachable members."""
    spare = len(record.members) - record.members_min
    gone = [m for m in record.members if m.node in unreachable and m.node != leader_id.node]
    return elected(record, leader_id, tuple(gone[:spare]))
