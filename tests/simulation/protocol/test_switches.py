"""Each rule that is taken away is missed, within a number of histories that is written down."""

from __future__ import annotations

import pytest

from penstock.replica.safeguards import ALL
from sim.protocol.switches import SWITCHES, Switch


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_its_absence_is_found(switch: Switch) -> None:
    found = switch.find()
    assert found is not None, f"{switch.seeds_max} histories do without {switch.off}"


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)


@pytest.mark.parametrize(
    "switch", [one for one in SWITCHES if one.reckless or one.focus], ids=lambda one: one.off
)
def test_with_the_rule_in_place_the_same_histories_hold(switch: Switch) -> None:
    """What is found is the rule's absence, and not the events that were made more frequent."""
    assert switch._replace(seeds_max=min(switch.seeds_max, 1000)).held() is None
