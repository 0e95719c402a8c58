"""The take-over when nsqd starts: `Broker.open` calls it with the data directory locked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock import limits
from penstock.log.segment import LogSettings
from penstock.takeover.takeover import Report, Takeover
from penstock.takeover.topicbuild import BuildSettings, Progress

if TYPE_CHECKING:
    from penstock.broker.options import BrokerOptions
    from penstock.clock import Clock
    from penstock.log.disk import Disk

SAID_EVERY_NS = 5 * limits.SECOND  # it may take minutes, and no client is served meanwhile

_log = logging.getLogger("penstock.broker")


def take_over_at_start(
    disk: Disk, data_path: str, options: BrokerOptions, clock: Clock
) -> Report | None:
    """The data of an official nsqd, if that is what the directory holds. Raises StorageError."""
    said_ns = clock.mono_ns()

    def say(progress: Progress) -> None:
        nonlocal said_ns
        now_ns = clock.mono_ns()
        if now_ns - said_ns >= SAID_EVERY_NS:
            said_ns = now_ns
            percent = 100 * progress.bytes_done // max(progress.bytes_total, 1)
            _log.info("taking over nsqd's data: %d %%, at %s", percent, progress.topic)

    log = LogSettings(
        segment_bytes_max=options.segment_bytes_max, segment_age_max_ns=options.segment_age_max_ns
    )
    settings = BuildSettings(
        node_id=options.node_id,
        clock=clock,
        log=log,
        journal_bytes_max=options.journal_bytes_max,
        on_progress=say,
    )
    return Takeover(disk, data_path, data_path, settings).run()
