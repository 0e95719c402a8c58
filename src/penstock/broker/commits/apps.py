"""Stages by app, so that one app cannot take the space of all.

A writer names the app, its version, and the attempt that it stages for. A new attempt replaces the
previous one: a restarted driver repeats the same version, and nobody can use what the killed one
had staged. A straggler of the older attempt is refused. The attempt that arrives later is the newer
one, so no clock is needed; after a restart the order of the files decides.

A writer that names no app is the app "".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.commits.stage_file import StageHead
from penstock.errors import CommitGap, Refused, StageSuperseded


class Ref(NamedTuple):
    """A stage as the client names it: each partition of a topic has names of its own."""

    topic: str
    name: str
    partition: int = 0


class Stage:
    __slots__ = ("body_at", "directory", "file_name", "head", "pinned")

    def __init__(self, head: StageHead, directory: str, file_name: str, body_at: int) -> None:
        self.head = head
        self.directory = directory
        self.file_name = file_name
        self.body_at = body_at
        self.pinned = False  # a commit works on it

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.file_name)

    @property
    def ref(self) -> Ref:
        return Ref(self.head.topic, self.head.name, self.head.partition)

    @property
    def of_topic(self) -> tuple[str, str]:
        """Name and identity: a topic recreated under the name has none of these stages."""
        return self.head.topic, self.head.identity

    @property
    def length(self) -> int:
        return self.body_at + self.head.bytes


class _App:
    def __init__(self) -> None:
        self.stages: dict[Stage, None] = {}  # as they were staged
        self.bytes = 0
        self.writing = 0
        self.used_ns = 0  # when the last one was staged
        self.attempts: dict[int, list[str]] = {}  # of each version, the newest last

    @property
    def count(self) -> int:
        return len(self.stages) + self.writing


class StageApps:
    def __init__(self) -> None:
        self._apps: dict[str, _App] = {}

    # --- changes ---

    def add(self, stage: Stage) -> None:
        app = self._apps.setdefault(stage.head.app, _App())
        app.stages[stage] = None
        app.bytes += stage.head.bytes
        app.used_ns = max(app.used_ns, stage.head.created_ns)
        self._meet(app, stage.head)

    def remove(self, stage: Stage) -> None:
        app = self._apps.get(stage.head.app)
        if app is not None and stage in app.stages:
            del app.stages[stage]
            app.bytes -= stage.head.bytes
            self._drop_empty(stage.head.app, app)

    def begin(self, head: StageHead) -> list[Stage]:
        """Begin to write a stage. Returns the stages of attempts that it replaces; raises
        StageSuperseded when a newer attempt has replaced its own."""
        app = self._apps.setdefault(head.app, _App())
        attempts = list(app.attempts.get(head.app_version, ()))
        if head.attempt in attempts[:-1]:
            raise StageSuperseded(head.app, head.app_version)
        is_new = head.attempt not in attempts
        self._meet(app, head)
        app.writing += 1
        return list(self._older(app, head.app_version)) if is_new and attempts else []

    def end(self, name: str) -> None:
        app = self._apps[name]
        app.writing -= 1
        self._drop_empty(name, app)

    def _meet(self, app: _App, head: StageHead) -> None:
        attempts = app.attempts.setdefault(head.app_version, [])
        if head.attempt not in attempts:
            attempts.append(head.attempt)
            del attempts[: -limits.STAGE_ATTEMPTS_MAX]

    def _drop_empty(self, name: str, app: _App) -> None:
        if not app.count:
            del self._apps[name]

    def _older(self, app: _App, version: int) -> Iterator[Stage]:
        """Stages of attempts before the newest one that no commit uses."""
        newest = app.attempts[version][-1]
        for stage in app.stages:
            head = stage.head
            if head.app_version == version and head.attempt != newest and not stage.pinned:
                yield stage

    # --- bounds ---

    def refusal_of(self, name: str) -> str:
        """Why this app may not stage the block that it has begun; "" when it may."""
        app = self._apps.get(name)
        most = limits.STAGES_APP_MAX if name else limits.STAGES_NAMELESS_MAX
        if app is None or app.count <= most:
            return ""
        if not name:
            return (
                f"{most} stages of writers that name no app are waiting already: commit them, "
                "abort those that are not wanted, or name an app"
            )
        return (
            f"app {name} has {most} stages already, the most that one commit takes: "
            f"stage larger blocks (Spark: stageBytes), or write less at a time. {HOW_TO_ABORT}"
        )

    def bytes_of(self, app: str) -> int:
        """Bytes that wait for a commit, without those of writers that name no app."""
        known = self._apps.get(app)
        return known.bytes if known is not None and app else 0

    def idlest(self, before_ns: int) -> list[Stage]:
        """Of the app that has been idle longest, unless it staged something since then."""
        apps = [
            app
            for app in self._apps.values()
            if app.used_ns < before_ns
            and not app.writing
            and not any(stage.pinned for stage in app.stages)
        ]
        if not apps:
            return []
        return list(min(apps, key=lambda app: app.used_ns).stages)

    # --- looking and giving up ---

    def superseded(self) -> list[Stage]:
        """Stages of older attempts: a crash came before their removal."""
        return [
            stage
            for app in self._apps.values()
            for version in app.attempts
            for stage in self._older(app, version)
        ]

    def of(self, name: str, version: int | None = None, up_to: int | None = None) -> list[Stage]:
        """Of one version, or of all up to one; none that a commit uses."""
        app = self._apps.get(name)
        return [
            stage
            for stage in (app.stages if app is not None else ())
            if not stage.pinned
            and (version is None or stage.head.app_version == version)
            and (up_to is None or stage.head.app_version <= up_to)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Of the apps, the largest first."""
        found = [_row(name, app) for name, app in self._apps.items() if app.stages]
        return sorted(found, key=lambda row: (-row["bytes"], row["app"]))


HOW_TO_ABORT = (
    "`penstock stage list` shows what is staged, and `penstock stage abort APP` removes what is "
    "not wanted any more"
)


def _row(name: str, app: _App) -> dict[str, Any]:
    heads = [stage.head for stage in app.stages]
    return {
        "app": name,
        "versions": sorted({head.app_version for head in heads if head.app_version >= 0}),
        "stages": len(heads),
        "bytes": app.bytes,
        "first_staged_at": min(head.created_ns for head in heads) // limits.SECOND,
        "last_staged_at": max(head.created_ns for head in heads) // limits.SECOND,
    }


def refused_for_all(count: int) -> Refused:
    return Refused(f"{count} stages of all apps are waiting already. {HOW_TO_ABORT}")


_Key = tuple[str, int]  # app, version


class CommitParts:
    """The list of a commit's stages, when it arrives in parts: reading a long one would hold up the
    loop.

    Parts arrive in order, and a sender may repeat each; the first one starts over. Gathered parts
    are forgotten when the commit is done, when others need the space, and at a restart: a sender
    whose request is answered with a gap sends all of them again. Nothing therefore depends on them.
    """

    def __init__(self) -> None:
        self._gathered: dict[_Key, list[list[Ref]]] = {}  # the one that grew last stands last

    @property
    def count(self) -> int:
        return sum(len(part) for parts in self._gathered.values() for part in parts)

    def add(self, app: str, version: int, part: int, refs: list[Ref]) -> list[Ref]:
        """Returns all parts so far, including this one. CommitGap when earlier ones are missing."""
        key = app, version
        parts = self._gathered.pop(key, [])
        if part > len(parts):
            if parts:
                self._gathered[key] = parts
            raise CommitGap(len(parts))
        parts[part:] = [refs]
        self._gathered[key] = parts
        while self.count > limits.COMMIT_GATHERED_MAX and len(self._gathered) > 1:
            del self._gathered[next(iter(self._gathered))]
        return [ref for one in parts for ref in one]

    def forget(self, app: str, version: int) -> None:
        self._gathered.pop((app, version), None)
