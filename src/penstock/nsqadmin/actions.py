"""An operator's changes, on every daemon concerned.

An action goes to all nsqlookupds and to all nsqds that have the topic. It has failed when none of
a kind did it; when some did not, the rest is done, and a warning says on how many and names the
others with their reasons.

Deleting asks for the nsqds before the lookupds forget them, and tombstones come first so that
consumers do not make a topic again that is being deleted. What a lookupd knows of a topic is all
that leads to an nsqd that can't be asked now. So every nsqd is asked for a sign of life first: when
none gives one nothing is deleted anywhere, and when some do not the lookupds keep the registration,
and only tombstone the topic on those that delete it.

An nsqlookupd of a cluster passes on what it is asked for. So it is told the whole shape of a topic,
and a delete meets nsqds where nothing is left: who has not got it has done what was asked for.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import FetchFailed, NotFound, PenstockError
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.upstream import LOOKUPD, NSQD, NsqdAddress, Upstream, warnings
from penstock.wire.names import is_ephemeral

VERBS = ("pause", "unpause", "empty")
_UNHEALTHY = '"NOK - '  # an nsqd that says so is there, and to delete may be what heals it
_DONE = {"pause": "paused", "unpause": "unpaused", "empty": "emptied", "delete": "deleted",
         "create": "made", "tombstone": "tombstoned"}  # fmt: skip


class NotDeleted(PenstockError):
    """More might be lost than was meant."""


class OfCluster(NotDeleted):
    """The deletion of a topic on one node would delete it in the whole cluster."""


class Operation(NamedTuple):
    """`names` are those in the audit log and in notifications; `run` returns a warning."""

    role: Role
    names: tuple[str, ...]
    about: dict[str, str]
    run: Callable[[], Awaitable[str]]


class Actions:
    def __init__(self, upstream: Upstream, left: Callable[[str, str], str] | None = None) -> None:
        """`left` names the data that a deletion does not reach."""
        self._upstream = upstream
        self._left = left

    def create(
        self, topic: str, channel: str = "", partitions: int = 0, replicas: int = 0
    ) -> Operation:
        """0: as many as nsqd makes by default."""
        names = ("create_topic", "create_channel") if channel else ("create_topic",)
        counts = {"partition_num": partitions, "replicator": replicas}
        shape = {name: str(number) for name, number in counts.items() if number}
        run = partial(self._create, topic, channel, shape)
        return Operation(Role.OPERATE, names, _names(topic, channel), run)

    def act(self, verb: str, topic: str, channel: str = "") -> Operation:
        """`verb` is one of VERBS."""
        role = Role.DESTROY if verb == "empty" else Role.OPERATE
        run = partial(self._act, verb, topic, channel)
        return Operation(role, (f"{verb}_{_kind(channel)}",), _names(topic, channel), run)

    def delete(self, topic: str, channel: str = "") -> Operation:
        """Also for a topic that only nsqlookupds know; not for an unknown one."""
        names, run = (f"delete_{_kind(channel)}",), partial(self._delete, topic, channel)
        return Operation(Role.DESTROY, names, _names(topic, channel), run)

    def forget(self, topic: str) -> Operation:
        """Delete a topic that no nsqd has, on the lookupds. NotDeleted."""
        run = partial(self._forget, topic)
        return Operation(Role.DESTROY, ("delete_topic",), _names(topic), run)

    def tombstone(self, node: str, topic: str) -> Operation:
        """Take a topic off one nsqd. OfCluster."""
        about, run = _names(topic) | {"node": node}, partial(self._tombstone, node, topic)
        return Operation(Role.DESTROY, ("tombstone_topic_producer",), about, run)

    async def _create(self, topic: str, channel: str, numbers: dict[str, str]) -> str:
        """On all nsqlookupds, so that nsqds create them at a publish; a channel also on the nsqds
        with the topic. Without nsqlookupds on the given nsqds. Most nsqlookupds ignore `numbers`,
        so with those the topic is created on all nsqds. Returns a warning."""
        upstream, notes = self._upstream, list[str]()
        names, shape = _names(topic, channel), _names(topic) | numbers
        at = list(upstream.nsqds)
        if upstream.lookupds and numbers:
            everywhere, missed = await upstream.producers()
            at = [one.address for one in everywhere]
            notes.append(missed)
        if numbers or not upstream.lookupds:  # first: what they refuse is not to be registered
            notes.append(await self._on(at, "/topic/create", shape))
        if upstream.lookupds:
            notes.append(await self._on_lookupds("/topic/create", shape))
        if upstream.lookupds and channel:
            notes.append(await self._on_lookupds("/channel/create", names))
            producers, missed = await upstream.producers_of(topic)
            at = [one.address for one in producers]
            notes.append(missed)
        if channel and at:
            notes.append(await self._on(at, "/channel/create", names))
        return warnings(*notes)

    async def _act(self, verb: str, topic: str, channel: str) -> str:
        producers, missed = await self._upstream.producers_of(topic)
        at = [one.address for one in producers]
        done = await self._on(at, f"/{_kind(channel)}/{verb}", _names(topic, channel))
        return warnings(missed, done)

    async def _delete(self, topic: str, channel: str) -> str:
        kind = _kind(channel)
        producers, missed = await self._upstream.producers_of(topic)
        notes, names = [missed], _names(topic, channel)
        addresses = [one.address for one in producers]
        alive = await self._alive(addresses)
        if self._upstream.lookupds and len(alive) == len(addresses):
            notes.append(await self._on_lookupds(f"/{kind}/delete", names))
        elif self._upstream.lookupds and not channel:
            notes += [await self._tombstoned(topic, one) for one in producers
                     if one.address in alive]  # fmt: skip
        if producers:
            notes.append(await self._on(addresses, f"/{kind}/delete", names))
        return warnings(*notes, self._left(topic, channel) if self._left else "")

    async def _alive(self, addresses: Sequence[str]) -> set[str]:
        """The nsqds that answer. UpstreamFailed when none does."""
        if not addresses:
            return set()

        async def ping(address: str) -> None:
            try:
                await self._upstream.get(address, "/ping")
            except FetchFailed as error:
                if _UNHEALTHY not in error.reason:
                    raise

        return set((await self._upstream.ask(NSQD, addresses, ping)).answers)

    async def _forget(self, topic: str) -> str:
        producers, missed = await self._upstream.producers()
        if missed:
            why = missed.removeprefix("WARNING: ")
            raise NotDeleted(f"not deleted: whether an nsqd has {topic} is not certain: {why}")
        for producer in producers:
            if topic in dict(producer.topics):
                where = f"{producer.address} has registered {topic}"
                raise NotDeleted(f"not deleted: {where}; delete it on its page")
        return await self._on_lookupds("/topic/delete", _names(topic))

    async def _tombstone(self, node: str, topic: str) -> str:
        producer, missed = await self.find(node)
        notes = [missed]
        await self._alive([producer.address])
        if not is_ephemeral(topic) and await self._is_of_cluster(producer.address):
            raise OfCluster(
                f"not deleted: {node} is a node of a cluster, which would delete {topic}"
                " everywhere; drain the node (penstock cluster drain) to move what it has"
            )
        if self._upstream.lookupds:
            notes.append(await self._tombstoned(topic, producer))
        notes.append(await self._on([producer.address], "/topic/delete", {"topic": topic}))
        return warnings(*notes)

    async def _is_of_cluster(self, address: str) -> bool:
        try:
            await self._upstream.get(address, "/cluster")
        except FetchFailed as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _tombstoned(self, topic: str, producer: NsqdAddress) -> str:
        names = {"topic": topic, "node": producer.address}
        return await self._on_lookupds("/topic/tombstone", names)

    async def find(self, node: str) -> tuple[NsqdAddress, str]:
        """The nsqd "host:port" that pages link to, and a warning. NotFound."""
        producers, warning = await self._upstream.producers()
        for producer in producers:
            if producer.address == node:
                return producer, warning
        raise NotFound("node", node)

    async def _on_lookupds(self, path: str, query: dict[str, str]) -> str:
        return await self._on(self._upstream.lookupds, path, query, LOOKUPD)

    async def _on(
        self, addresses: Iterable[str], path: str, query: dict[str, str], kind: str = NSQD
    ) -> str:
        """Returns a warning about those that failed."""

        async def post(address: str) -> Any:
            try:
                return await self._upstream.post(address, path, query)
            except FetchFailed as error:
                if error.status == 404 and path.endswith("/delete"):
                    return None
                raise

        asked = await self._upstream.ask(kind, addresses, post)
        verb = _DONE[path.rpartition("/")[2]]
        of = "" if kind == NSQD else f" {kind}s"
        done, all_ = len(asked.answers), len(asked.answers) + len(asked.failed)
        return asked.refusals.replace(": ", f": {verb} on {done} of {all_}{of}: ", 1)


def _kind(channel: str) -> str:
    return "channel" if channel else "topic"


def _names(topic: str, channel: str = "") -> dict[str, str]:
    return {"topic": topic, "channel": channel} if channel else {"topic": topic}
