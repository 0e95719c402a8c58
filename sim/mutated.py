"""The rules that worlds and tests miss when they are taken away, and within how many histories.

`world` is one of the two, or the path of a test whose own histories notice. `focus` makes the
events of the protocol world come more often that the breach needs. With `reckless` more is lost
there than can be survived: what is checked then is that it is reported.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str  # what is done without the rule
    module: str
    text: str  # stands in the module once
    instead: str
    within: int = 0  # histories, of a world
    focus: tuple[tuple[str, float], ...] = ()
    reckless: bool = False
    world: str = "protocol"


_LEADING = "penstock.replication.leader"
_FOLLOWING = "penstock.replication.follower"
_CHOICE = "penstock.replication.election"
_ELECTIONS = (("elect", 3.0), ("cut_link", 3.0), ("mend_link", 2.0), ("publish", 2.0))

PROTOCOL = (
    # leaderships and epochs
    Mutant(
        "leadership_survives_failure",
        _LEADING,
        '''        """A write or a sync failed."""
        self.leave(reason)
''',
        '''        """A write or a sync failed."""
        self.end = self.own = self.log.written_end
''',
        300,
    ),
    Mutant(
        "lower_epoch_heard",
        _FOLLOWING,
        "        if epoch < self.epoch:\n"
        "            self.out.append(Refuse(session, self.epoch))\n            return\n",
        "",
        5_000,
    ),
    Mutant(
        "epoch_not_saved",
        _FOLLOWING,
        "            self.out.append(SaveEpoch(epoch))\n",
        "            pass\n",
        50,
    ),
    Mutant(
        "older_record_obeyed",
        _LEADING,
        "if self.over or revision <= self.revision:",
        "if self.over:",
        1_500,
    ),
    # appends
    Mutant(
        "acknowledged_before_sync",
        _FOLLOWING,
        "        if self.waits and self.log.synced_end < end:\n"
        "            self.out.append(Sync())\n"
        "        else:\n"
        "            self._acknowledge(end)\n\n"
        "    def _acknowledge(self, written: int) -> None:\n"
        "        synced = min(self.log.synced_end, written)  # the cut may not be done yet\n",
        "        self._acknowledge(end)\n\n"
        "    def _acknowledge(self, written: int) -> None:\n"
        "        synced = written\n",
        50,
    ),
    Mutant(
        "own_log_counted_unsynced",
        _LEADING,
        "self.own = self.log.synced_end if self.waits else self.end",
        "self.own = self.end",
        100,
    ),
    Mutant(
        "own_sync_not_awaited",
        _LEADING,
        "        if not self.waits:\n            self.own = end\n",
        "        self.own = end\n",
        100,
    ),
    Mutant(
        "chain_not_compared",
        _FOLLOWING,
        "        return before == self.log.name_before(start)\n",
        "        return True\n",
        6_000,
        (("rot", 5.0),),
    ),
    Mutant(
        "equal_ends_taken_for_equal_logs",
        _LEADING,
        "        end = common_end(self.log.extent(), extent)\n",
        "        if extent.end == self.log.written_end:\n"
        "            peer.counted = peer.sent = extent.end\n"
        "            return\n"
        "        end = common_end(self.log.extent(), extent)\n",
        50,
    ),
    Mutant(
        "acknowledgements_outlive_link",
        _LEADING,
        "        if self.peers.pop(node, None) is None:\n            return\n",
        "        if node not in self.peers:\n            return\n"
        "        self.peers[node].sent, self.peers[node].session = UNMATCHED, -1\n",
        300,
    ),
    Mutant(
        "matched_by_ends",
        _LEADING,
        "        end = common_end(self.log.extent(), extent)\n",
        "        end = min(self.log.extent().end, extent.end)\n",
        50,
    ),
    Mutant(
        "matched_by_newest_epoch",
        _LEADING,
        "        end = common_end(self.log.extent(), extent)\n",
        "        own, end = self.log.extent(), common_end(self.log.extent(), extent)\n"
        "        if own.epochs and extent.epochs:\n"
        "            newest = extent.epochs[-1][0]\n"
        "            places = [n for n, (e, _) in enumerate(own.epochs) if e <= newest]\n"
        "            last = own.end_of(places[-1]) if places else own.start\n"
        "            end = min(last, extent.end) if places else last\n",
        2_000,
        _ELECTIONS,
    ),
    Mutant(
        "crc_not_compared",
        _FOLLOWING,
        "        if self.log.name_before(end) != chain:\n",
        "        if False:\n",
        600,
        (("rot", 5.0), ("isolate", 3.0)),
    ),
    Mutant(
        "committed_beyond_match",
        _FOLLOWING,
        "        known = min(committed, self.matched_end)\n",
        "        known = committed\n",
        500,
    ),
    Mutant(
        "committed_was_cut",
        _FOLLOWING,
        "        return end < self.committed and not self.is_unclean\n",
        "        return False\n",
        1_500,
        (("recover", 6.0),),
        reckless=True,
    ),
    Mutant(
        "cut_left_out",
        _FOLLOWING,
        "                self.out.append(Truncate(end))\n",
        "                pass\n",
        50,
    ),
    # sets
    Mutant(
        "learner_counted",
        _LEADING,
        "        for member in self._needed:\n            counted = self._counted(member)\n"
        "            if counted < end:\n                end = counted\n",
        "        ends = sorted((one.counted for one in self.peers.values()), reverse=True)\n"
        "        wanted = len(self._needed)\n"
        "        end = min([end, *ends[:wanted]]) if len(ends) >= wanted else UNMATCHED\n",
        50,
    ),
    Mutant(
        "counted_by_node",
        _LEADING,
        "if peer is None or peer.replica != member.replica:\n            return UNMATCHED",
        "if peer is None:\n            return UNMATCHED",
        50,
    ),
    Mutant(
        "level_at_committed_end",
        _LEADING,
        "        if peer.counted < self.start_end:\n            return False\n",
        "",
        5_000,
        _ELECTIONS,
    ),
    Mutant(
        "shrunk_at_once",
        _LEADING,
        "        self._propose(regrouped(self.record, gone=gone))\n",
        "        self._propose(regrouped(self.record, gone=gone))\n"
        "        self._sets = [self._sets[-1]]\n"
        "        self._need()\n",
        200,
    ),
    Mutant(
        "unknown_settled_by_read",
        _LEADING,
        "            self._propose(self.record)\n",
        "            self._adopt(self.record, self.revision)\n",
        3_000,
        (("lose_transaction", 4.0),),
    ),
    Mutant(
        "newest_set_only",
        _LEADING,
        "for members in self._sets for member in members)",
        "for members in self._sets[-1:] for member in members)",
        50,
    ),
    Mutant(
        "revision_not_compared",
        _LEADING,
        "return Propose(number, record, self.revision, generations)",
        "return Propose(number, record, -1, generations)",
        50,
    ),
    Mutant(
        "generation_not_compared",
        _LEADING,
        "        return ((entry.node, entry.generation),)\n",
        "        return ()\n",
        600,
    ),
    Mutant(
        "demanded_and_not_counted",
        _LEADING,
        "        if newcomer is not None:\n            self._sets",
        "        if False:\n            self._sets",
        500,
    ),
    Mutant("set_below_minimum", _LEADING, "kept >= self.record.members_min and", "True and", 100),
    # elections
    Mutant("stopped_elected", _CHOICE, '        return "it is stopped"\n', "        pass\n", 2_000),
    Mutant(
        "elected_as_another_replica",
        _CHOICE,
        "if entry is None or entry.replica != candidate.leader_id.replica:",
        "if entry is None:",
        200,
    ),
    Mutant("too_many_left_out", _CHOICE, "tuple(gone[:spare])", "tuple(gone)", 50),
    Mutant(
        "one_silent_member_passed_over",
        _CHOICE,
        "    if set(lost) != set(record.members) or not left:\n",
        "    if not left:\n",
        4_000,
        (("elect_last", 10.0), ("lose_power", 2.0)),
    ),
    Mutant(
        "elected_outside_set",
        _CHOICE,
        '        return "it is no member"\n',
        "        return None\n",
        50,
    ),
    Mutant(
        "suspect_elected",
        _CHOICE,
        "    if is_suspect(entry, candidate):\n",
        "    if False:\n",
        2_000,
        (("lose_power", 3.0),),
    ),
    Mutant(
        "longest_elected_unasked",
        _CHOICE,
        "    lost = {one.entry: one.extent for one in reports if _has_lost(one)}\n",
        "    ends = [(one.extent.end, one.entry) for one in reports if one.extent is not None]\n"
        "    return max(ends)[1] if ends else None\n"
        "    lost = {one.entry: one.extent for one in reports if _has_lost(one)}\n",
        4_000,
        (("elect_last", 10.0), ("lose_power", 2.0)),
    ),
)


def _of_test(world: str, module: str, *rows: tuple[str, str, str]) -> tuple[Mutant, ...]:
    """Name, text, and what stands instead."""
    return tuple(Mutant(*row[:1], module, *row[1:], world=world) for row in rows)


_JOURNALS = "tests/replication/test_journal_walk.py"
_SCENARIOS = "tests/simulation/brokers/test_scenarios.py"
TESTED = (
    *_of_test(
        _SCENARIOS,
        "penstock.cluster.failure_detector",
        (
            "absence_acted_on_at_once",
            "        return mono_ns - since_ns >= self.wait_ns\n",
            "        return True\n",
        ),
        ("one_witness_is_enough", "WITNESSES_MIN = 2\n", "WITNESSES_MIN = 1\n"),
    ),
    *_of_test(
        _SCENARIOS,
        "penstock.cluster.membership",
        (
            "barren_leadership_kept",
            '            self._resign(name, f"nothing could be committed: {waited}")\n',
            "            pass\n",
        ),
    ),
    *_of_test(
        "tests/cluster/test_failure_detector.py",
        "penstock.cluster.membership",
        ("readmitted_at_once", "            if doublings >= 0:\n", "            if False:\n"),
    ),
    *_of_test(
        "tests/cluster/test_failure_detector.py",
        "penstock.cluster.failure_detector",
        (
            "corrupt_elected_first",
            "        return next(iter(record.preferred(intact)), None)\n",
            "        return None\n",
        ),
    ),
    *_of_test(
        _JOURNALS,
        "penstock.replication.journal",
        ("answered_before_held", "        if position <= self.held:\n", "        if True:\n"),
        ("held_when_written", "        return peer.synced\n", "        return peer.written\n"),
        (
            "level_without_journal",
            "        return self._is_mine(peer.synced) and peer.synced >= self.held\n",
            "        return True\n",
        ),
        (
            "places_without_epochs",
            "        return epoch_of(position.generation) == self._epoch\n",
            "        return True\n",
        ),
        (
            "dropped_when_written",
            "self._waiting[0][0] <= held:\n            found",
            "True:\n            found",
        ),
        (
            "starts_outlive_generation",
            "            self._waiting.clear()\n            self._newest = 0\n",
            "            pass\n",
        ),
    ),
    *_of_test(
        "tests/replication/test_record.py",
        "penstock.replication.authority",
        ("authority_never_ends", "    acts = age_ns <= AUTHORITY_NS\n", "    acts = True\n"),
        (
            "lone_leader_unbounded",
            "        goes_on = acts or age_ns <= isolation.publish_ns\n",
            "        goes_on = True\n",
        ),
    ),
    *_of_test(
        "tests/cluster/test_controller.py",
        "penstock.cluster.controller",
        (
            "replaced_controller_goes_on",
            "= [CreatedIs(keys.CONTROLLER, effect.controller_created)]",
            "= []",
        ),
    ),
    *_of_test(
        "tests/cluster/test_watching_restored.py",
        "penstock.cluster.watch",
        ("behind_and_not_asked", "            self._confirm_revision()\n", "            pass\n"),
    ),
    *_of_test(
        "tests/cluster/test_corrupt_replicas.py",
        "penstock.cluster.reconciler",
        (
            "part_of_list_acted_on",
            "if self.view.is_pending or not self.due or",
            "if not self.due or",
        ),
    ),
    *_of_test(
        "tests/cluster/test_corrupt_replicas.py",
        "penstock.broker.replicas.replicated_partition",
        (
            "corrupt_stepped_over",
            "        leader.steps_over_damage = False\n",
            "        leader.steps_over_damage = True\n",
        ),
    ),
)

BROKERS = (
    Mutant(
        "committed_alone",
        _LEADING,
        "        return peer.counted\n\n    def advance",
        "        return self.end\n\n    def advance",
        32,
        world="brokers",
    ),
    Mutant(
        "journal_not_sent",
        "penstock.replication.journal",
        "                self.out.append(self._frame(node, peer, record))\n",
        "                pass\n",
        3,
        world="brokers",
    ),
)

MUTANTS = PROTOCOL + BROKERS + TESTED
CANARIES = ("learner_counted", "matched_by_ends", "cut_left_out")  # in the ordinary run
