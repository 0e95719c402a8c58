"""A broker without a daemon, for tests: `sim.brokers.process`, with what a test does to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import kernel, limits
from penstock.broker.channels.channel import Channel
from penstock.log.disk import OsDisk
from sim.brokers.clients import MESSAGE_TIMEOUT_NS as MESSAGE_TIMEOUT_NS
from sim.brokers.clients import Consumer as Consumer
from sim.brokers.clients import Message as Message
from sim.brokers.clients import Outcome as Outcome
from sim.brokers.clients import bodies as bodies
from sim.brokers.clients import messages as messages
from sim.brokers.process import Process
from sim.clock import FakeClock
from sim.disk import Fault, SimDisk
from sim.threads import Threads

LIVE: list[Process] = []  # of the present test: each engine has descriptors


class World(Process):
    def __init__(
        self,
        path: Path,
        family: list[World],
        disk: Any = None,
        clock: FakeClock | None = None,
        threads: Threads | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, kernel, disk or OsDisk(), clock, threads, **options)
        LIVE.append(self)
        self.family = family
        self.closed = False
        self.changes: list[tuple[str, str, str]] = []
        self.broker.context.hooks.append(
            lambda change, topic, channel: self.changes.append(
                (change.name, topic.name, channel.name if channel else "")
            )
        )

    @classmethod
    def start(cls, path: Path, family: list[World], **options: Any) -> World:
        world = cls(path, family, **options)
        world.broker.open()
        family.append(world)
        world.broker.validate()
        return world

    def turns(self) -> None:
        """Until what was submitted is through."""
        self.turn()
        self.turn()

    def release(self) -> None:
        """Jobs of the sync threads that were held end, and what follows from that happens."""
        self.threads.held = False
        self.threads.run()
        self.turns()

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            self.pass_ns(limits.SECOND)

    def pass_ns(self, ns: int) -> None:
        """Time goes by, and the second's housekeeping with it."""
        self.clock.pass_ns(ns)
        self.turn()
        self.broker.housekeeping()
        while self.broker.delays.slice():
            self.turn()
        self.turn()

    def publish(self, topic: str, *bodies: bytes, due_ns: int = 0) -> Outcome:
        outcome = Outcome()
        self.broker.topic(topic).publish(list(bodies), due_ns, outcome)
        self.turns()
        return outcome

    def channel(self, topic: str, channel: str) -> Channel:
        """One that is there."""
        return self.broker.find_topic(topic).find_channel(channel)

    def consumer(self, topic: str, channel: str, rdy: int = 100) -> Consumer:
        return Consumer(self, self.broker.topic(topic).channel(channel), rdy)

    def fail(self, call: Any, path_part: str) -> Fault:
        """Each of these calls, until the disk's faults are cleared."""
        fault: Fault = self.disk.inject(Fault(call, path_part=path_part, times=0))
        return fault

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.broker.close()
            self.engine.close()

    def restart(self, **options: Any) -> World:
        """An orderly stop and a start."""
        self.close()
        return self._again(self.path, options)

    def killed(self, **options: Any) -> World:
        """A start on what the files hold at this instant, as after kill -9."""
        if isinstance(self.disk, SimDisk):
            disk = self.disk.copy()
            disk.faults = self.disk.faults
            self.close()
            return self._again(self.path, {"disk": disk, **options})
        image = self.path.with_name(self.path.name + "+")
        shutil.copytree(self.path, image)
        self.close()
        return self._again(image, options)

    def _again(self, path: Path, options: dict[str, Any]) -> World:
        chosen = {name: getattr(self.options, name) for name in self.options.__slots__}
        chosen |= {"disk": self.disk, "clock": self.clock, **options}
        return World.start(path, self.family, **chosen)


Start = Callable[..., World]  # the fixture `start`
