"""Each rule that is taken away is missed: else the histories that hold prove nothing."""

import pytest

from sim.mutants import BY_NAME, changed, try_out
from sim.mutated import CANARIES, MUTANTS


def test_every_mutant_stands_in_the_product_as_it_is_now() -> None:
    assert len(BY_NAME) == len(MUTANTS)
    for mutant in MUTANTS:
        compile(changed(mutant), mutant.name, "exec")


def test_the_absence_of_a_rule_is_found() -> None:
    for name in CANARIES:
        assert try_out(BY_NAME[name]).is_found, name


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_absence_of_each_rule_is_found() -> None:
    verdicts = {mutant.name: try_out(mutant) for mutant in MUTANTS}
    assert {name: one.text for name, one in verdicts.items() if not one.is_found} == {}


@pytest.mark.long
def test_with_the_rules_in_place_the_same_histories_hold() -> None:
    """What is found is the rule's absence, and not the events that were made more frequent."""
    from sim.histories import find
    from sim.protocol.histories import play

    for mutant in MUTANTS:
        if mutant.reckless or mutant.focus:
            count = min(mutant.within, 1000)
            found = find(lambda seed, one=mutant: play(seed, one.reckless, one.focus), 0, count)
            assert found is None, mutant.name
