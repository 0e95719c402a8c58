"""`penstock log repair`: list what is corrupt, ask, and give it up (`log/repair.py`)."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

from penstock.log.disk import Disk, OsDisk, lock_directory
from penstock.log.inspect import TOPICS, Found, Place
from penstock.log.repair import Loss, find_losses, give_up
from penstock.tools.verbs import WrongUse, confirm, print_json


def repair(arguments: argparse.Namespace, found: Found) -> bool:
    """True when something corrupt was found and is still there. Raises PenstockError, OSError."""
    disk, data_path = OsDisk(), arguments.path.rstrip("/") or "/"
    if not disk.is_directory(os.path.join(data_path, TOPICS)):
        rule = "give the data directory, and --topic for one topic"
        raise WrongUse(f"{data_path} has no {TOPICS} in it: {rule}")
    lock = lock_directory(disk, data_path)
    try:
        return _repair(disk, arguments, data_path, found.places)
    finally:
        lock.release()


def _repair(disk: Disk, arguments: argparse.Namespace, data_path: str, places: list[Place]) -> bool:
    losses = {place: find_losses(disk, place) for place in places}
    losses = {place: rows for place, rows in losses.items() if rows}
    every = [loss for rows in losses.values() for loss in rows]
    if not arguments.json:
        for line in _lines(every):
            print(line)
    if not every:
        if arguments.json:
            print_json({"lost": [], "copies": []})
        return False
    messages = sum(loss.messages for loss in every)
    if not confirm(arguments, f"give up {messages} messages", "lost"):
        return True
    copies: list[str] = []
    for place, rows in losses.items():
        copies += give_up(disk, data_path, place, rows, time.time_ns())
    if arguments.json:
        print_json({"lost": [loss._asdict() for loss in every], "copies": copies})
    else:
        for copy in copies:
            print(f"copied to {copy}")
        print(f"{messages:,} messages are given up; all others are as they were. Start nsqd again.")
    return False


def _lines(losses: list[Loss]) -> Iterator[str]:
    for loss in losses:
        yield (
            f"CORRUPT  {loss.topic}/{loss.partition}: offsets {loss.from_offset} to "
            f"{loss.to_offset - 1} ({loss.messages:,} messages): {loss.reason}"
        )
        whose = ", ".join(loss.unfinished_by)
        yield f"         not finished by: {whose or 'no channel, so none loses anything'}"
    if not losses:
        yield "nothing to repair: every message can be read"
