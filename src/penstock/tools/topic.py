"""`penstock topic`: list, make, change and remove topics, on all the nodes that are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from penstock import limits
from penstock.errors import PenstockError
from penstock.tools import peek, reports
from penstock.tools.app import Json, Partition, Topic, Yes, arg, group, opt, switch, verb
from penstock.tools.changes import act, configure
from penstock.tools.connection import Http
from penstock.tools.nodes import ask_each
from penstock.tools.output import FAILED, Row, confirm, print_json
from penstock.tools.stats import Pace, look

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot

Settings = Annotated[list[str] | None, arg("NAME=VALUE", "empty value: the default")]

app = group(
    "Topics of the nodes.", "penstock topic list", "penstock topic create clicks --partitions 8"
)


@verb(app, "penstock topic list --json", name="list")
def list_topics(at: Http, as_json: Json = False) -> int:
    """The names, sorted."""
    state = look(at.nodes())
    if not state.documents:
        raise PenstockError(state.reasons())
    if as_json:
        print_json(state.as_json())
    return state.tell_names(
        [] if as_json else [topic for topic, of in sorted(state.rows) if not of]
    )


@verb(app, "penstock topic show orders", "penstock topic show orders --watch --count 2")
def show(
    topic: Topic, at: Http, pace: Pace, partition: Partition = None, as_json: Json = False
) -> int:
    """Its partitions, and how far each channel is behind in them."""
    members = at.nodes()

    def document(now: Snapshot, before: Snapshot) -> Row:
        reports.need_answer(now)
        if topic not in now.topics:
            raise PenstockError(f"no such topic: {topic}")
        return reports.topic_document(now.topics[topic], partition)

    def lines(found: Row, now: Snapshot) -> list[str]:
        return [*reports.node_errors(now), *reports.topic_lines(found)]

    return reports.report(lambda: reports.look(members, topic), document, lines, pace, as_json)


verb(
    app, "penstock topic peek orders --count 3",
    "penstock topic peek orders --time 2026-11-21T06:00:00Z --json",
)(peek.peek)  # fmt: skip

Partitions = Annotated[
    int | None, opt("N", "how many it is to have", min=1, max=limits.PARTITIONS_MAX)
]


@verb(app, "penstock topic create clicks --partitions 8")
def create(
    topic: Topic,
    at: Http,
    partitions: Partitions = None,
    replicas: Annotated[
        int | None, opt("N", "copies, in a cluster", min=1, max=limits.MEMBERS_MAX)
    ] = None,
    extended: Annotated[bool, switch("--extended", "messages may have headers")] = False,
    as_json: Json = False,
) -> int:
    """Make it (nothing happens when it is there).

    Without --partitions it has as many as nsqd's --default-partitions says."""
    query = {"topic": topic}
    if partitions is not None:
        query["partition_num"] = str(partitions)
    if replicas is not None:
        query["replicator"] = str(replicas)
    if extended:
        query["extend"] = "true"
    return act(at, "create", query, as_json)


@verb(app, "penstock topic expand orders --partitions 16")
def expand(
    topic: Topic,
    at: Http,
    partitions: Annotated[
        int, opt("N", "how many it is to have", min=1, max=limits.PARTITIONS_MAX)
    ],
    rehash: Annotated[bool, switch("--rehash", "spread keys over all of them")] = False,
    as_json: Json = False,
) -> int:
    """Add partitions, while it is in use.

    Messages with a key stay in the partitions that they are in now, unless --rehash spreads the
    keys over all of them; that is refused as long as a channel has anything unfinished."""
    query = {"topic": topic, "partition_num": str(partitions)}
    if rehash:
        query["rehash"] = "true"
    return act(at, "expand", query, as_json, path="/topic/partition/expand")


@verb(app, "penstock topic extend orders")
def extend(topic: Topic, at: Http, as_json: Json = False) -> int:
    """Let its messages have headers, from now on."""
    query = {"topic": topic, "upgradeext": "true"}
    return act(at, "extend", query, as_json, path="/topic/meta/update")


@verb(app, "penstock topic concede orders --yes")
def concede(
    topic: Topic,
    at: Http,
    partition: Annotated[
        int | None, opt("N", "only this one", min=0, max=limits.PARTITIONS_MAX - 1)
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Do not wait any more for corrupt messages that no replica has.

    Readers of a topic with several replicas wait at what is corrupt on the leader's disk until
    another replica has it. Concede it when no replica that will come back has it: these messages
    are lost to every channel that has not finished them."""
    members = at.nodes(changes=True)
    where = ", ".join(node.address for node in members)
    if not confirm(yes, f"concede what is corrupt of topic {topic} on {where}", topic):
        return FAILED
    query = {"topic": topic} | ({} if partition is None else {"partition": str(partition)})
    found = ask_each(members, lambda node: node.post("/topic/concede", query))
    return found.tell(as_json, conceded)


def conceded(address: str, document: Row) -> Iterator[str]:
    """Only the leader of a partition of several replicas waits at what is corrupt."""
    if not document["conceded"]:
        yield f"{address}: nothing is waited for"
    for one in document["conceded"]:
        first, last = one["from"], one["to"] - 1
        offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
        yield f"{address}: partition {one['partition']}: {offsets} given up"


@verb(app, "penstock topic config orders", "penstock topic config orders max_depth=100000")
def config(
    topic: Topic, at: Http, settings: Settings = None, yes: Yes = False, as_json: Json = False
) -> int:
    """Show its settings, or change them: NAME=VALUE ...

    What lets messages go that are there now (max_age, retain_age, retain_bytes) asks first."""
    return configure(at, "/topic/config", {"topic": topic}, settings or (), yes, as_json)


def _add(word: str, about: str) -> None:
    @verb(app, f"penstock topic {word} orders", name=word, about=about)
    def change(topic: Topic, at: Http, as_json: Json = False) -> int:
        return act(at, word, {"topic": topic}, as_json)


def _add_asking(word: str, about: str) -> None:
    @verb(app, f"penstock topic {word} orders --yes", name=word, about=f"{about}; asks for --yes.")
    def change(topic: Topic, at: Http, yes: Yes = False, as_json: Json = False) -> int:
        return act(at, word, {"topic": topic}, as_json, yes)


_add_asking("delete", "Remove it, its channels and its messages")
_add_asking("empty", "Drop what no channel has been given yet")
_add("pause", "Stop handing messages to channels.")
_add("unpause", "Hand them over again.")
