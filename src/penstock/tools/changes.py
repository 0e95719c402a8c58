"""What `topic` and `channel` have in common: a change on all nodes that are named, and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.tools.connection import Http
from penstock.tools.nodes import ask_all, ask_each
from penstock.tools.output import FAILED, WrongUse, confirm, tell

_LETTING_GO = frozenset({"max_age", "retain_age", "retain_bytes"})  # settings

Target = dict[str, str]  # topic, channel and what else a request has


def act(
    at: Http, word: str, target: Target, as_json: bool, yes: bool | None = None, path: str = ""
) -> int:
    """One POST to each node; `yes`: it cannot be taken back. A node that has not got the thing is
    told apart from one that failed."""
    path = path or f"/{'channel' if 'channel' in target else 'topic'}/{word}"
    members = at.nodes(changes=True)
    name = _name_of(target)
    if yes is not None:
        where = ", ".join(node.address for node in members)
        if not confirm(yes, f"{word} {name} on {where}", target.get("channel", target["topic"])):
            return FAILED
    answers = ask_all(members, lambda node: node.post(path, target))
    reasons = {address: error.reason for address, error in answers.bad.items()}
    results = {node.address: reasons.get(node.address, "done") for node in members}
    lines = [f"{address}: {word} {name}: {result}" for address, result in results.items()]
    tell(as_json, {"nodes": results}, lines)
    return answers.code if answers.good else FAILED


def _name_of(target: Target) -> str:
    name = f"topic {target['topic']}"
    if "channel" in target:
        name = f"channel {target['channel']} of {name}"
        return f"partition {target['partition']} of {name}" if "partition" in target else name
    return name


def configure(
    at: Http, path: str, target: Target, settings: Sequence[str], yes: bool, as_json: bool
) -> int:
    """Show the settings of each node, after changing those that are given."""
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise WrongUse(f"{setting!r} is not NAME=VALUE")
        changes[name.replace("-", "_")] = value
    members = at.nodes(changes=bool(changes))
    if losing := sorted(_LETTING_GO & changes.keys()):
        typed = target.get("channel", target["topic"])
        question = f"change {', '.join(losing)} of {typed}, which may let messages go"
        if not confirm(yes, question, typed):
            return FAILED
    found = ask_each(
        members, lambda node: (node.post if changes else node.get)(path, target | changes)
    )
    return found.tell(as_json, _settings)


def _settings(address: str, settings: dict[str, Any]) -> Iterator[str]:
    yield address
    for name, value in settings.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        yield f"  {name} = {'' if shown is None else shown}"
