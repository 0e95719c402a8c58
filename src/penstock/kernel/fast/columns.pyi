from collections.abc import Sequence

from typing_extensions import Buffer

from penstock.kernel.batch_interface import Columns

def decode_columns(data: Buffer, sections: Sequence[int] = ()) -> Columns: ...
def encode_columns(
    lengths: Buffer,
    bodies: Buffer,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    trailer: Buffer = b"",
) -> bytes: ...
