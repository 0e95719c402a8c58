"""Coverage goes on whatever a test leaves behind.

A tracer that goes away mid-run costs the coverage of all that its process runs afterwards,
and the run still looks whole. So before each of the cores' tests coverage is started again if its
tracer has gone, and the test before it is named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


class Keeper:
    def __init__(self) -> None:
        self._traced = False  # whether this process measures by a trace function at all
        self._last = "the start"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if not item.get_closest_marker("no_cover"):
            self._keep(item)
        self._last = item.nodeid
        yield

    def _keep(self, item: pytest.Item) -> None:
        if sys.gettrace() is not None:
            self._traced = True
            return
        plugin: Any = item.config.pluginmanager.getplugin("_cov")
        controller = getattr(plugin, "cov_controller", None)
        if not self._traced or controller is None or not controller.started:
            return
        print(f"\ncoverage: its tracer was gone after {self._last}", file=sys.__stderr__)
        controller.pause()
        controller.resume()
