"""`penstock cluster`: the nodes' reports about their cluster, faults first.

Each node answers `GET /cluster` from its own view of the metadata. Only the leader of a partition
knows how far its followers are, so the nodes that one answer names are asked, too, and of each
partition the answer of the newest epoch counts, the leader's before others.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple, TypeVar

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.nsqadmin.words import listed
from penstock.nsqdapi.calls import bracketed
from penstock.tools import check
from penstock.tools.app import Json, OnlyTopic, Yes, arg, group, opt, verb
from penstock.tools.check import CRITICAL, OK, WARNING, WORDS, Finding
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed, ask_all, ask_cluster, ask_each
from penstock.tools.output import DONE, FAILED, Output, Row, WrongUse, columns_table, confirm, plain

T = TypeVar("T")
NAMES_SHOWN, RESTORED_SHOWN = 3, 10

app = group(
    "A cluster of nsqds: nodes, partitions, replicas, and what is wrong with them.",
    "cluster status",
    "cluster check --context prod",
)


class Cluster(NamedTuple):
    """The answers of all nodes, as one."""

    name: str
    nodes: list[Row]
    partitions: list[Row]
    answers: dict[int, Row]  # by node
    failures: dict[int, str]  # nodes that live by the records, and do not answer

    def down(self) -> set[int]:
        return {row["node"] for row in self.nodes if not row["alive"]}

    def stuck(self) -> dict[int, list[Row]]:
        """By draining node the partitions that no other node can take."""
        able = {row["node"] for row in self.nodes if row["alive"] and row["state"] == "active"}
        full = [row for row in self.partitions if able <= set(row["preferred"])]
        draining = [row["node"] for row in self.nodes if row["state"] == "draining"]
        kept = {node: [row for row in full if node in row["preferred"]] for node in draining}
        return {node: rows for node, rows in kept.items() if rows}


# --- asking ---


def gather(at: Http) -> Cluster:
    """Raises NodeFailed when no node answers, WrongUse when the one that does is in no cluster."""
    try:
        node, answer = _first(at.nodes(), ask_cluster)
    except NodeFailed as error:
        if error.code != "NO_CLUSTER":
            raise
        raise WrongUse(
            f"{error.url} is a node by itself: nsqd --cluster=etcd://HOST:2379/NAME makes it a"
            " node of a cluster (docs/cluster.md)"
        ) from None
    others = {number: one for (_, number), one in at.others({node.address: answer}).items()}
    answers, failures = ask_numbered(others)
    return merge([answer, *answers], failures)


def _first(members: Sequence[Node], ask: Callable[[Node], T]) -> tuple[Node, T]:
    """The first that answers: any node knows the others."""
    *others, last = members
    for node in others:
        with suppress(NodeFailed):
            return node, ask(node)
    return last, ask(last)


def ask_numbered(members: dict[int, Node]) -> tuple[list[Row], dict[int, str]]:
    """All at once. Their answers, and the errors of the others."""
    found = ask_all(list(members.values()), ask_cluster)
    failures = {number: str(found.bad[node.address]) for number, node in members.items()
                if node.address in found.bad}  # fmt: skip
    return list(found.good.values()), failures


def merge(answers: Sequence[Row], failures: dict[int, str]) -> Cluster:
    """The first answer lists the nodes."""
    best: dict[tuple[str, int], tuple[tuple[int, bool], Row]] = {}
    for answer in answers:
        for row in answer["partitions"]:
            rank = row["epoch"], row["leader"] == answer["node"]
            name = row["topic"], row["partition"]
            if name not in best or rank > best[name][0]:
                best[name] = rank, row
    partitions = [best[name][1] for name in sorted(best)]
    by_node = {answer["node"]: answer for answer in answers}
    rows = [row for row in answers[0]["nodes"] if row["state"] != "removed"]
    rows.sort(key=lambda row: int(row["node"]))
    return Cluster(answers[0]["cluster"]["name"], rows, partitions, by_node, failures)


# --- judging ---


def findings(found: Cluster) -> Iterator[Finding]:
    """The worst first."""
    yield from _about_partitions(found)
    stuck = found.stuck()
    for row in found.nodes:
        number, since = row["node"], 0.0
        if not row["alive"]:
            since = max((one["since_seconds"] for one in found.partitions
                         if number in missing(one)), default=0.0)  # fmt: skip
            do = "Start its nsqd, or replace it (--cluster-replace) if it is gone for good"
            holds = any(number in (*one["preferred"], *one["in_sync"]) for one in found.partitions)
            if row["state"] == "draining" and not holds:
                do = f"Nothing is left on it: penstock cluster remove {number}"
            elif number in stuck:
                do = "Add a node: it takes the replicas that no other node can"
            where = f" at {_address(row)}" if _address(row) else ""
            yield Finding(WARNING, f"node {number}{where} is down", since, do)
        elif number in found.failures:
            text = f"node {number} is registered and does not answer: {found.failures[number]}"
            yield Finding(WARNING, text, since, "Look at its log and at its HTTP port")
        elif number in stuck:
            names = listed(map(title, stuck[number]), NAMES_SHOWN)
            text = f"node {number} is drained, and keeps {names}: no other node can take a replica"
            yield Finding(WARNING, text, 0, "Add a node")
    for number, answer in found.answers.items():
        if answer["trouble"]:
            do = "Look at etcd"
            if "not trusted" in answer["trouble"]:  # it answers, and knows less than the node
                do += ", and rebuild what it has lost: penstock cluster restore"
            yield Finding(WARNING, f"node {number}: {answer['trouble']}", 0, do)
        elif (health := answer.get("health", "OK")) != "OK":  # older nodes do not say
            yield Finding(WARNING, f"node {number}: {health}", 0, "Look at the log of that node")
        apart = [row["node"] for row in answer["nodes"]
                 if row["alive"] and not row["linked"] and row["node"] != number]  # fmt: skip
        if apart:
            do = "Look at their --replication-address, secrets or certificates, and the network"
            yield Finding(WARNING, f"node {number} has no link to {_nodes(apart)}", 0, do)


def _about_partitions(found: Cluster) -> Iterator[Finding]:
    """The same fault of several partitions is one finding: a node that is down concerns
    hundreds."""
    down, stuck = found.down(), found.stuck()
    followers = [one for row in found.partitions for one in row.get("followers") or ()]
    held_s: dict[int, float] = {}
    for one in followers:
        node, left_s = one["node"], one.get("held_off_seconds", 0)
        held_s[node] = max(held_s.get(node, 0), left_s)
    groups: dict[tuple[int, str, str], list[Row]] = {}
    for row in found.partitions:
        groups.setdefault(_fault(row, down, stuck, held_s), []).append(row)
    for (level, fault, do), rows in sorted(groups.items(), key=lambda item: -item[0][0]):
        if level == OK:
            continue
        since = max(row["since_seconds"] for row in rows)
        yield Finding(level, f"{listed(map(title, rows), NAMES_SHOWN)}: {fault}", since, do)


def _fault(
    row: Row, down: set[int], stuck: Collection[int], held_s: Mapping[int, float]
) -> tuple[int, str, str]:
    here = [node for node in row["in_sync"] if node not in down]
    if row["offline"] or row["leader"] is None:
        do = "One of them leads within seconds; if none does, look at their logs"
        if away := set(row["in_sync"]) & down:
            do = f"Start {_nodes(away)}: one of them leads then, and nothing is lost"
        is_named = row["leader"] is not None and row["leader"] not in down
        why = f"node {row['leader']} does not begin to lead" if is_named else "no leader"
        return CRITICAL, f"offline, {why}; in sync is {_nodes(row['in_sync'])}", do
    if len(here) < row["min_in_sync"]:
        do = f"Start {_nodes(missing(row) | set(row['in_sync']) & down)}"
        return CRITICAL, f"no publishes, {len(here)} of {row['min_in_sync']} needed in sync", do
    if row["under_replicated"]:
        apart = missing(row)
        if not apart:
            do = "Add a node: it gets one. With enough nodes, an nsqlookupd with --cluster makes it"
            return WARNING, "fewer replicas than its topic wants", do
        fault = f"under-replicated, without {_nodes(apart)}"
        if apart <= down & set(stuck):
            return WARNING, fault, "Add a node: it gets a replica"
        if apart & down:
            return WARNING, fault, f"Start {_nodes(apart & down)}: it catches up by itself"
        if wait_s := max(held_s.get(node, 0) for node in apart):
            return WARNING, fault, f"It has failed repeatedly: it counts again in {wait_s:.0f} s"
        return WARNING, fault, "It catches up; if the lag does not fall, look at its log"
    return OK, "", ""


def missing(row: Row) -> set[int]:
    return set(row["preferred"]) - set(row["in_sync"])


def title(row: Row) -> str:
    return f"{row['topic']}/{row['partition']}"


def _nodes(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    return f"node{'s' * (len(ordered) != 1)} {', '.join(map(str, ordered)) or 'none'}"


def _address(row: Row) -> str:
    """Empty for a node that has been down since before the others began."""
    return f"{bracketed(row['host'])}:{row['http_port']}" if "host" in row else ""


# --- telling ---


def status_rows(found: Cluster) -> list[Row]:
    return [
        {**_node_row(row),
         "leads": sum(one["leader"] == row["node"] for one in found.partitions),
         "replicas": sum(row["node"] in one["preferred"] for one in found.partitions),
         "in_sync": sum(row["node"] in one["in_sync"] for one in found.partitions),
         "links": _links(found, row["node"])}
        for row in found.nodes
    ]  # fmt: skip


def _node_row(row: Row) -> Row:
    state = row["state"] if row["alive"] else "down"
    return {"node": row["node"], "address": _address(row), "state": state}


def _version_rows(found: Cluster) -> list[Row]:
    keys = "tcp_port", "replication_address", "zone", "version", "generation"
    return [_node_row(row) | {key: row.get(key) for key in keys} for row in found.nodes]


def _links(found: Cluster, number: int) -> list[int] | None:
    """None: it does not answer."""
    if number not in found.answers:
        return None
    nodes = found.answers[number]["nodes"]
    return [one["node"] for one in nodes if one["linked"] and one["node"] != number]


def _topic_rows(found: Cluster) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for row in partition_rows(found):
        topics.setdefault(row["topic"], []).append(row)
    return [
        {"topic": topic, "partitions": len(rows),
         "offline": sum(row["state"] == "offline" for row in rows),
         "under_replicated": sum(row["state"] == "under-replicated" for row in rows),
         "leaders": sorted({row["leader"] for row in rows} - {None}),
         "messages": sum(row["end"] or 0 for row in rows),
         "lag": max(row["lag"] or 0 for row in rows)}
        for topic, rows in topics.items()
    ]  # fmt: skip


def partition_rows(found: Cluster) -> list[Row]:
    return [
        {"topic": row["topic"], "partition": row["partition"], "leader": row["leader"],
         "epoch": row["epoch"], "in_sync": sorted(row["in_sync"]), "replicas": row["preferred"],
         "state": "offline" if row["offline"]
         else "under-replicated" if row["under_replicated"] else "well",
         "since_seconds": row["since_seconds"],
         "end": row["end_offset"], "committed": row["committed_offset"],
         "lag": max((one["lag"] for one in row.get("followers") or ()), default=None)}
        for row in found.partitions
    ]  # fmt: skip


def _show(found: Cluster, rows: list[Row], left: int = 1) -> Output:
    """Any table, below the faults."""
    wrong = sorted(findings(found), key=lambda finding: -finding.level)
    texts = [{**one._asdict(), "level": WORDS[one.level]} for one in wrong]
    lines = []
    for finding in wrong:
        style = terminal.RED if finding.level == CRITICAL else terminal.YELLOW
        lines.append(terminal.painted(terminal.printable(f"{finding.line()}."), style))
    columns = [(key.replace("_", " ").upper(), key, plain) for key in (rows[0] if rows else ())]
    lines += columns_table(columns, rows, left) if rows else [f"cluster {found.name}: none yet"]
    return Output({"cluster": found.name, "findings": texts, "rows": rows}, lines)


def _examples(word: str) -> tuple[str, str]:
    line = f"cluster {word}"
    return line, f"{line} --nsqd-http-address node2:4151 --json"


def _add_table(
    word: str, about: str, rows_of: Callable[[Cluster], list[Row]], left: int = 1
) -> None:
    @verb(app, *_examples(word), name=word, about=about)
    def show(at: Http) -> Output:
        found = gather(at)
        return _show(found, rows_of(found), left)


_add_table("status", "Show what is wrong, and one line for each node.", status_rows, left=2)
_add_table("nodes", "List the nodes with their addresses and versions.", _version_rows, left=2)
_add_table("topics", "List the topics: offline partitions, lag.", _topic_rows)


@verb(app, *_examples("partitions"))
def partitions(at: Http, topic: OnlyTopic = "") -> Output:
    """List the partitions: leader, epoch, in-sync set, offsets, lag."""
    found = gather(at)
    return _show(found, [one for one in partition_rows(found) if topic in ("", one["topic"])])


@verb(app, *_examples("check"), name="check")
def is_well(at: Http) -> Output:
    """Check the cluster: one line and an exit code.

    0: well, 1: a replica or a node is missing, 2: a partition takes no publishes or nobody answers,
    3: used wrongly."""
    return check.verdict(lambda: findings(gather(at)))


# --- desired states of nodes ---

Number = Annotated[int, arg("NODE", "its number", min=0)]


def _add_state(word: str, state: str, about: str, *without: str) -> None:
    example = f"cluster {word} 2{'' if without else ' --yes'}"

    @verb(app, example, name=word, about=about, without=without)
    def want(node: Number, at: Http, yes: Yes = False) -> Output:
        confirm(yes is None or yes, f"{word} node {node} from the cluster", str(node))
        wanted = {"node": node, "state": state}
        _first(at.nodes(changes=True), lambda one: one.post("/cluster/node", wanted))
        return Output(wanted, [f"node {node}: {state}"])


_add_state("activate", "active", "Let a node hold replicas and lead partitions.", "yes")
_add_state(
    "maintain", "maintenance", "Let it keep its replicas, lead none and get no new ones.", "yes"
)
_add_state(
    "drain", "draining", "Move its replicas to other nodes.\n\n`penstock cluster partitions` shows"
    " how far it is. They stay where no other node has room.", "yes",
)  # fmt: skip
_add_state("remove", "removed", "Remove a node that is drained and stopped; asks for --yes.")


# --- the metadata in etcd, restored from the nodes' memories ---

Lost = Annotated[list[int] | None, opt("NODE", "is gone for good; may be repeated", min=0)]


@verb(app, "cluster restore --yes", "cluster restore --lost 3 --yes")
def restore(at: Http, lost: Lost = None, yes: Yes = False, as_json: Json = False) -> int:
    """Rebuild the metadata after etcd went back; asks for --yes.

    Start all nodes first: what a node remembers that is not there is waited for, unless --lost
    gives it up. The plan is shown before anything is changed."""
    # After etcd was restored from a backup, or began with nothing, it gives out old records. Nodes
    # do not believe them: they serve on as they were, and nothing about who leads changes any more.
    # Each node says what it remembers; one of them compares that with etcd, and puts the newest
    # there.
    members = at.members(changes=True)
    name = _first(members, ask_cluster)[1]["cluster"]["name"]
    keys = "node", "records", "topics", "channels"
    answers = ask_each(members, lambda one: one.get("/cluster/memory", None, *keys))
    memories = {one["node"]: one for one in answers.good.values()}
    asked = next(one for one in members if one.address in answers.good)
    body = json.dumps({"memories": list(memories.values())}).encode()
    query = {"lost": ",".join(map(str, lost or ()))}
    planned = "kept", "topics", "channels", "put", "left"
    plan: Row = asked.post("/cluster/restore", query, *planned, body=body)
    if not as_json:
        print("\n".join(_plan_lines(plan, sorted(memories), answers.bad.values())), flush=True)
    confirm(yes, f"restore the metadata of cluster {name}", name)
    plan = asked.post("/cluster/restore", {**query, "apply": True}, *planned, body=body)
    done = "done: the nodes follow within seconds (penstock cluster status)"
    return Output(plan, [done], FAILED if plan["left"] else DONE).print(as_json)


def _plan_lines(
    plan: Row, answered: Sequence[int], silent: Iterable[PenstockError]
) -> Iterator[str]:
    yield f"nodes {', '.join(map(str, answered))} have said what they remember"
    yield from (f"no answer: {error}" for error in silent)
    yield f"{plan['kept']} partitions stand in etcd as they should"
    for what in ("topics", "channels"):
        names = [one if isinstance(one, str) else "/".join(one) for one in plan[what]]
        if names:
            yield f"{len(names)} {what} are put back: {listed(names, RESTORED_SHOWN)}"
    if plan["put"]:
        names = [f"{topic}/{number}" for topic, number in plan["put"]]
        yield f"{len(names)} partitions are put back: {listed(names, RESTORED_SHOWN)}"
    for one in plan["left"]:
        yield f"{one['topic']}/{one['partition']} is left as it is: {one['reason']}"
