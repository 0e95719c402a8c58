from typing_extensions import Buffer

from penstock.kernel.interface import Columns

def decode_columns(data: Buffer) -> Columns: ...
