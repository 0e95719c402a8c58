"""nsqadmin that counts its objects when it gets SIGUSR1, into the file that COUNTS names.

It is quicker than the real one in what takes minutes: a browser that left is given up at once, and
with each count the pages that none ever opened.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from pathlib import Path

from penstock import limits
from penstock.command import memory
from penstock.nsqadmin import main

limits.ADMIN_RECONNECT_S = 0.5


def count() -> None:
    from nicegui import Client
    from nicegui.element import Element

    from penstock.nsqadmin.pages import guard
    from penstock.nsqadmin.watch import Watch

    waiting = len(Client.instances)
    Client.prune_instances(client_age_threshold=0.0)
    gc.unfreeze()
    gc.collect()
    every = gc.get_objects()
    kinds = [type(one) for one in every]  # asked itself, a dead weak proxy among them would raise
    counts = {
        "waiting": waiting,
        "clients": sum(issubclass(kind, Client) for kind in kinds),
        "elements": sum(issubclass(kind, Element) for kind in kinds),
        "listeners": sum(len(one._listeners._callbacks) for one in every if type(one) is Watch),
        "callers": len(guard._drawn),
        "tasks": len(asyncio.all_tasks()),
    }
    memory.settle()
    path = Path(os.environ["COUNTS"])
    path.with_suffix(".new").write_text(json.dumps(counts))
    path.with_suffix(".new").replace(path)


def settle_and_listen() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, count)
    settle()


settle, memory.settle = memory.settle, settle_and_listen

if __name__ == "__main__":
    sys.exit(main.main())
