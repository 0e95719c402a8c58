"""`penstock cluster restore`: the metadata in etcd is made again from what the nodes remember.

After etcd was restored from a backup, or began with nothing, it gives out old records. Nodes do not
believe them: they serve on as they were, and nothing about who leads changes any more. Each node
says what it remembers, one of them compares that with what etcd has, and puts the newest there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from penstock.errors import PenstockError
from penstock.tools import nodes
from penstock.tools.nodes import Node
from penstock.tools.output import DONE, FAILED, Row, confirm, print_json

SHOWN = 10


def restore(
    cluster: str, members: Sequence[Node], lost: Sequence[int], yes: bool, as_json: bool
) -> int:
    answers = nodes.ask_each(members, _remembered)
    memories = {one["node"]: one for one in answers.good.values()}
    asked = next(node for node in members if node.address in answers.good)
    body = json.dumps({"memories": list(memories.values())}).encode()
    query = {"lost": ",".join(map(str, lost))}
    plan: Row = asked.post("/cluster/restore", query, body)
    if not as_json:
        print("\n".join(_lines(plan, sorted(memories), answers.bad.values())), flush=True)
    if not confirm(yes, f"restore the metadata of cluster {cluster}", cluster):
        return FAILED
    plan = asked.post("/cluster/restore", {**query, "apply": "true"}, body)
    if as_json:
        print_json(plan)
    else:
        print("done: the nodes follow within seconds (penstock cluster status)")
    return FAILED if plan["left"] else DONE


def _remembered(node: Node) -> Row:
    found: Row = node.document("/cluster/memory", None, "node", "records", "topics", "channels")
    return found


def _lines(plan: Row, heard: Sequence[int], silent: Iterable[PenstockError]) -> Iterator[str]:
    yield f"nodes {', '.join(map(str, heard))} have said what they remember"
    yield from (f"no answer: {error}" for error in silent)
    yield f"{plan['kept']} partitions stand in etcd as they should"
    for what in ("topics", "channels"):
        names = [one if isinstance(one, str) else "/".join(one) for one in plan[what]]
        if names:
            yield f"{len(names)} {what} are put back: {_some(names)}"
    if plan["put"]:
        names = [f"{topic}/{number}" for topic, number in plan["put"]]
        yield f"{len(names)} partitions are put back: {_some(names)}"
    for one in plan["left"]:
        yield f"{one['topic']}/{one['partition']} is left as it is: {one['reason']}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
