"""The checksum of JSON files: every flipped bit is found."""

from __future__ import annotations

import json

import pytest

from penstock.log.sealed import seal, unseal

DOCUMENT = (
    b'{"name":"orders","channels":[{"name":"ch","number":1}],"created_ns":1795228439718974468}'
)


def test_a_sealed_file_is_still_json_and_gives_its_document_back() -> None:
    sealed = seal(DOCUMENT)
    assert unseal(sealed) == DOCUMENT
    value = json.loads(sealed)
    assert list(value)[-1] == "crc32c"
    assert {name: value[name] for name in json.loads(DOCUMENT)} == json.loads(DOCUMENT)


def test_no_flipped_bit_goes_unseen() -> None:
    sealed = seal(DOCUMENT)
    for position in range(len(sealed)):
        for bit in range(8):
            hurt = bytearray(sealed)
            hurt[position] ^= 1 << bit
            with pytest.raises(ValueError, match="checksum"):
                unseal(bytes(hurt))


def test_what_was_never_sealed_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end with its checksum"):
        unseal(DOCUMENT)


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"a":1}\n'])
def test_only_an_object_with_a_member_can_be_sealed(document: bytes) -> None:
    with pytest.raises(ValueError, match="sealed"):
        seal(document)
