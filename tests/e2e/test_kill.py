"""kill -9 in the middle of everything, and what must be true after it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from cases import seeds

from .harness import Load, fresh_seed, load_on

HISTORIES = seeds(1, 5)  # of each durability
KILLS = 5  # that count, in one history
VOID_ROUNDS_MAX = 5  # rounds with too little traffic, which are run again
ROUND_S_MAX = 10.0
TIMEOUT_MS = 700


def one_round(load: Load, rng: random.Random) -> bool:
    """Load until the kill, and until there was enough of it, which a loaded machine needs longer
    for. False when there was too little all the same."""
    load.connect()
    ends_s = time.monotonic() + rng.uniform(0.08, 0.6)
    patience_s = time.monotonic() + ROUND_S_MAX
    while (now_s := time.monotonic()) < ends_s or (
        now_s < patience_s and not load.traffic.is_enough()
    ):
        load.run(min(0.1, max(0.02, ends_s - now_s)))
        if rng.random() < 0.1:
            load.replace_consumer()
    load.kill()
    return load.traffic.is_enough()


def start_again(load: Load, rng: random.Random) -> None:
    """Sometimes the start is killed too."""
    if rng.random() < 0.25:
        load.daemon.spawn()
        time.sleep(rng.uniform(0.05, 0.3))
        load.kill()
    load.restart()


def one_history(load: Load, rng: random.Random) -> None:
    load.daemon.start()
    load.make_channel("first")
    load.make_channel("second")
    counted, void = 0, 0
    while counted < KILLS:
        if one_round(load, rng):
            counted += 1
        else:
            void += 1
            assert void <= VOID_ROUNDS_MAX, f"too little traffic in {void} rounds: {load.traffic}"
        start_again(load, rng)
        if counted == 2 and len(load.channels) == 2:
            load.make_channel("third")  # it gets only what comes from now on
    load.drain()
    load.judge()
    assert load.daemon.stop() == 0


@pytest.mark.parametrize("number", HISTORIES)
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, durability: str, number: int) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability} {number}")
    load = load_on(tmp_path / "data", rng, TIMEOUT_MS, f"--durability={durability}")
    try:
        one_history(load, rng)
    except BaseException as error:
        error.add_note(f"the daemon said:\n{load.daemon.stderr()[-4000:]}")
        raise
    finally:
        load.hang_up()
        load.daemon.kill()
