"""Both forms are what the interfaces say: mypy compares them here, and fails where a member is
missing or says something else. Nothing of it runs.

The stubs of the compiled form stand for it. That the compiled modules are as their stubs and the
interfaces say, mypy cannot see: tests/kernel/test_contract.py looks at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from penstock.kernel.batch_interface import (
    BatchFunctions,
    ColumnFunctions,
    CrcFunctions,
    HashFunctions,
    HeaderFunctions,
    IdFunctions,
)
from penstock.kernel.bulk_interface import Bulk as AnyBulk
from penstock.kernel.interface import Conn, Window
from penstock.kernel.interface import Engine as AnyEngine
from penstock.kernel.tail_interface import Tail
from penstock.kernel.trace_interface import TraceFunctions

Form = Literal["compiled", "pure"]


class Kernel(
    CrcFunctions,
    HashFunctions,
    HeaderFunctions,
    IdFunctions,
    BatchFunctions,
    ColumnFunctions,
    TraceFunctions,
    Protocol,
):
    """All names of one form."""

    @property
    def IMPLEMENTATION(self) -> Form: ...
    @property
    def Engine(self) -> type[AnyEngine]: ...
    @property
    def Bulk(self) -> type[AnyBulk]: ...


if TYPE_CHECKING:
    from penstock.kernel.fast import batch as fast_batch
    from penstock.kernel.fast import bulk as fast_bulk
    from penstock.kernel.fast import columns as fast_columns
    from penstock.kernel.fast import crc32c as fast_crc32c
    from penstock.kernel.fast import engine as fast_engine
    from penstock.kernel.fast import headers as fast_headers
    from penstock.kernel.fast import hexid as fast_hexid
    from penstock.kernel.fast import murmur3 as fast_murmur3
    from penstock.kernel.fast import traceruns as fast_traceruns
    from penstock.kernel.pure import (
        batch,
        bulk,
        columns,
        conn,
        crc32c,
        engine,
        headers,
        hexid,
        murmur3,
        tail,
        traceruns,
        window,
    )

    ENGINES: tuple[type[AnyEngine], ...] = (engine.Engine, fast_engine.Engine)
    CONNS: tuple[type[Conn], ...] = (conn.Conn,)
    TAILS: tuple[type[Tail], ...] = (tail.Tail,)
    WINDOWS: tuple[type[Window], ...] = (window.Window,)
    BULKS: tuple[type[AnyBulk], ...] = (bulk.Bulk, fast_bulk.Bulk)

    CRCS: tuple[CrcFunctions, ...] = (crc32c, fast_crc32c)
    HASHES: tuple[HashFunctions, ...] = (murmur3, fast_murmur3)
    HEADERS: tuple[HeaderFunctions, ...] = (headers, fast_headers)
    IDS: tuple[IdFunctions, ...] = (hexid, fast_hexid)
    BATCHES: tuple[BatchFunctions, ...] = (batch, fast_batch)
    COLUMNS: tuple[ColumnFunctions, ...] = (columns, fast_columns)
    TRACES: tuple[TraceFunctions, ...] = (traceruns, fast_traceruns)
