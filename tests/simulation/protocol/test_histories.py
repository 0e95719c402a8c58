"""Replication in the protocol world: 200,000 histories, and none that breaks a promise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sim.protocol.histories import Tally, find, play_block
from sim.protocol.world import World

HISTORIES = 200_000
BLOCKS = 40
BLOCK_HISTORIES = HISTORIES // BLOCKS


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_breaks_a_promise(block: int) -> None:
    result = play_block(block * BLOCK_HISTORIES, BLOCK_HISTORIES)
    assert result.found == ()
    assert is_lively(result.tally)


@pytest.mark.parametrize(
    "seed",
    [
        30_321_674,  # a follower stops where the log of a replaced leader has rotted
        42_825_447,  # a replaced leader commits a batch that rots on its own disk
    ],
)
def test_alarms_that_were_false_stay_away(seed: int) -> None:
    assert play_block(seed, 1).found == ()


def is_lively(tally: Tally) -> bool:
    """Did enough happen? Else the histories say nothing."""
    count = tally.histories
    return (
        tally.committed > 3 * count
        and tally.offices > count
        and tally.growths > count / 2
        and tally.shrinks > count / 8
        and tally.cuts > count / 30
    )


def test_histories_in_which_nothing_happens_are_void() -> None:
    assert not is_lively(Tally(histories=100, committed=5000, offices=300))


def test_one_lost_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: a follower loses its last batch each time that something is committed."""

    def commit_and_lose(world: World) -> None:
        for node in world.nodes:
            if node.line is None and node.kept.log.end and node.follower.committed:
                node.kept.log.truncate(node.kept.log.end - 1)

    def losing_run(world: World) -> None:
        has_lost = False
        for event in world.draw():
            world.step(event)
            if not has_lost and world.observer.answered > 2:
                has_lost = True
                commit_and_lose(world)

    monkeypatch.setattr(World, "run", losing_run)
    assert find(0, 100) is not None


def test_a_seed_is_the_same_history_in_another_process() -> None:
    program = "import sys; from sim.main import sim_main; sim_main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "--seed", "4711"]
    texts = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[0].endswith(b"everything held\n")
