"""A block read from a file and the buffer that it stands on."""

from __future__ import annotations

import gc
from types import ModuleType

from penstock.kernel import Source


def test_a_window_in_a_cycle_gives_its_blocks_buffer_back(kernel: ModuleType) -> None:
    data = bytearray(kernel.encode_batch([b"a", b"b"], 0, 1 << 22, 1))
    view = memoryview(data)  # older than the window, so the collector would clear it first
    engine = kernel.Engine(1 << 20, 5 << 20, 2500)
    tail = engine.tail(b"t", 2, 0)
    window = engine.window(tail, 0)
    window.owner = [window]
    assert window.load(Source.FORWARD, view) == 1
    engine.forget_window(window)
    del window, tail, view
    engine.close()
    del engine
    gc.collect()
    data.clear()  # BufferError while somebody still looks at it
