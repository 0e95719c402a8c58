from collections.abc import Mapping, Sequence

from typing_extensions import Buffer

from penstock.kernel.batch_interface import BatchHeader

def id_at(base_id: int, index: int) -> int: ...
def id_index(base_id: int, count: int, id: int) -> int: ...
def encode_batch(
    bodies: Sequence[bytes],
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int = 0,
    leader_epoch: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
    sections: Mapping[int, Mapping[int, int | bytes]] | None = None,
) -> bytes: ...
def check_batch(data: Buffer, position: int) -> tuple[int, int]: ...
def decode_header(data: Buffer, position: int) -> BatchHeader: ...
def decode_bodies(data: Buffer, position: int) -> list[bytes]: ...
def decode_sections(data: Buffer, position: int) -> dict[int, dict[int, int | bytes]]: ...
