"""What IDENTIFY asks for."""

from __future__ import annotations

import json

import pytest

from penstock.client.handshake import identify
from penstock.client.options import ConsumerOptions, ProducerOptions
from penstock.wire.extfilter import ExtFilter, FilterType
from penstock.wire.identify import Offer, Settings, decode_request, negotiate

FRESH = Settings("c", "h", "", 0, 1, 0, 0, 1)
RED = {"type": 1, "filter_ext_key": "color", "filter_data": "red"}


def test_a_tag_and_a_filter_arrive() -> None:
    asked = identify(ConsumerOptions(desired_tag="new", ext_filter=RED))
    found = negotiate(decode_request(asked), FRESH, Offer(version="1"))
    assert found.desired_tag == "new"
    assert found.ext_filter == ExtFilter(FilterType.EXACT, (("color", "red"),))


@pytest.mark.parametrize("options", [ConsumerOptions(), ProducerOptions()])
def test_who_asks_for_none_names_none(options: ConsumerOptions | ProducerOptions) -> None:
    assert {"desired_tag", "ext_filter", "extend_support"}.isdisjoint(json.loads(identify(options)))
