"""Where the program is at this moment: its tasks, and the stack of every thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback


def tasks_report() -> str:
    tasks = asyncio.all_tasks()
    lines = [f"{len(tasks)} tasks", *sorted(map(str, tasks))]
    return "\n".join(lines) + "\n\n"


def stacks_report() -> str:
    frames = sys._current_frames()
    parts = [f"{len(frames)} threads\n"]
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        parts.append(f"thread {thread.name}:\n{stack}")
    return "\n".join(parts)
