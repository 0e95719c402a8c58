"""Pages in memory that nobody looks at.

NiceGUI keeps a page for a minute when it was asked for and no browser has opened its socket: it may
be on its way. A script that asks for pages, or a check of health, never opens one, so that hundreds
of pages would wait, each some hundred kilobytes. Here the newest few wait; a browser that comes
late for another loads it again by itself.

A page that is gone is a circle of objects, which only the collector frees. It is called soon after,
once for all that left meanwhile: what waits for it lies between things that stay.
"""

from __future__ import annotations

import asyncio
import gc

from nicegui import Client

from penstock import limits


def trim() -> None:
    """With every request, before it may make one more."""
    if len(Client.instances) < limits.ADMIN_PAGES_WAITING:
        return
    waiting = [one for one in Client.instances.values() if _waits(one)]
    for one in waiting[: 1 - limits.ADMIN_PAGES_WAITING]:
        one.delete()


def _waits(client: Client) -> bool:
    """For its first socket. One that has lost it comes again, or is deleted, soon."""
    return not client.has_socket_connection and not client._delete_tasks


class Sweeper:
    def __init__(self) -> None:
        self._is_due = False

    def on_page_left(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(limits.ADMIN_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._is_due = False
        gc.collect()
