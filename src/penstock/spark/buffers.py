"""What Arrow holds of a binary column: its data, end to end, and where each value ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def ends_of(column: pa.Array) -> np.ndarray[Any, Any]:
    """Where the values begin and end in the data: one more than rows."""
    if not len(column):
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def values_of(column: pa.Array) -> memoryview:
    data = column.buffers()[2]
    return memoryview(data) if data is not None else memoryview(b"")
