"""What IDENTIFY asks for."""

from __future__ import annotations

import json

import pytest

from penstock.client import handshake
from penstock.client.handshake import identify
from penstock.client.options import ConsumerOptions, ProducerOptions
from penstock.wire.extfilter import ExtFilter, FilterType
from penstock.wire.identify import Offer, Settings, decode_request, encode_response, negotiate

FRESH = Settings("c", "h", "", 0, 1, 0, 0, 1)
RED = {"type": 1, "filter_ext_key": "color", "filter_data": "red"}


def test_a_tag_and_a_filter_arrive() -> None:
    asked = identify(ConsumerOptions(desired_tag="new", ext_filter=RED))
    found = negotiate(decode_request(asked), FRESH, Offer(version="1"))
    assert found.desired_tag == "new"
    assert found.ext_filter == ExtFilter(FilterType.EXACT, (("color", "red"),))


def test_an_envelope_is_asked_for_and_granted() -> None:
    options = ConsumerOptions(envelope=True)
    found = negotiate(decode_request(identify(options)), FRESH, Offer(version="1"))
    assert found.envelope
    answer = encode_response(found, Offer(version="1"))
    assert handshake.negotiate("a:1", options, answer).envelope
    assert not handshake.negotiate("a:1", options, b"{}").envelope


@pytest.mark.parametrize("options", [ConsumerOptions(), ProducerOptions()])
def test_who_asks_for_none_names_none(options: ConsumerOptions | ProducerOptions) -> None:
    names = {"desired_tag", "ext_filter", "extend_support", "envelope"}
    assert names.isdisjoint(json.loads(identify(options)))
