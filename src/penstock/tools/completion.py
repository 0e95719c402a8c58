"""Names that may stand where the user types: of topics, channels, partitions and nodes; and the
scripts of bash and zsh, which give penstock the line as it is, in the way of typer's fish: bash
cuts words at `:` and `=`, so addresses would be in pieces.

Nobody who presses Tab waits: what has not answered within a second (`PENSTOCK_COMPLETION_SECONDS`)
is not offered. Names come from daemons, and shells expand what they are given to complete with. So
only names pass whose characters mean nothing to a shell.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import typer

from penstock.errors import PenstockError
from penstock.nsqdapi.calls import positions, stats_query
from penstock.tools import connection
from penstock.tools.nodes import Node, ask_all

ANSWER_SECONDS = 1.0  # all of it, however many are asked
VARIABLE = "PENSTOCK_COMPLETION_SECONDS"
_HARMLESS = re.compile(r"[A-Za-z0-9_.#:/\[\]-]+", re.ASCII)
_EXPECTED = (PenstockError, OSError, ValueError, KeyError, TypeError, AttributeError)

_ASK = "_TYPER_COMPLETE_FISH_ACTION=get-args _PENSTOCK_COMPLETE=complete_fish _TYPER_COMPLETE_ARGS="
BASH = f"""\
_penstock_completion() {{
    local IFS=$'\\n' line=${{COMP_LINE:0:COMP_POINT}} now=${{COMP_WORDS[COMP_CWORD]}} word cut=
    word=${{line##* }}
    # what stands behind a : or = is a word for bash, which replaces that alone
    [[ $now == [:=] ]] && now=
    [[ $word == *"$now" ]] && cut=${{word%"$now"}}
    COMPREPLY=($({_ASK}"$line" "$1"))
    COMPREPLY=("${{COMPREPLY[@]%%$'\\t'*}}")
    COMPREPLY=("${{COMPREPLY[@]#"$cut"}}")
}}
complete -o default -F _penstock_completion penstock
"""
ZSH = f"""\
#compdef penstock
_penstock_completion() {{
    local -a found
    found=("${{(@f)$({_ASK}"${{(j: :)words[1,CURRENT]}}" $words[1])}}")
    found=("${{(@)${{(@)found:#}}//:/\\\\:}}")
    found=("${{(@)found/$'\\t'/:}}")
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    (( $#found )) && _describe penstock found || _files
}}
if [[ $zsh_eval_context == *func ]]; then
    _penstock_completion "$@"
else
    compdef _penstock_completion penstock
fi
"""

Ask = Callable[[Node], Iterable[str]]


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _asked(ctx, lambda node: node.get("/topics", None, "topics")["topics"],
                  lambda node: [one["topic_name"] for one in _stats(node, "")])  # fmt: skip


def channels(ctx: typer.Context, incomplete: str) -> list[str]:
    topic = {"topic": ctx.params.get("topic") or ""}
    return _asked(ctx, lambda node: node.get("/channels", topic, "channels")["channels"],
                  lambda node: [below["channel_name"] for one in _stats(node, topic["topic"])
                                for below in one["channels"]])  # fmt: skip


def partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    topic = ctx.params.get("topic") or ""
    if not topic:
        return []
    ask = positions([topic])
    return _asked(ctx, None, lambda node: map(str, node.ask(ask).topics[topic].partitions))


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _asked(ctx, connection.http_addresses, lambda node: [node.address])


def _stats(node: Node, topic: str) -> Iterable[dict[str, Any]]:
    return node.get("/stats", stats_query(topic), "topics")["topics"] or ()


def _asked(ctx: typer.Context, of_lookupd: Ask | None, of_nsqd: Ask) -> list[str]:
    """Nothing when no node answers, or the line makes no sense."""
    if ctx.params.get("nsqd_tcp_address"):
        return []  # nsqd gives names over HTTP only
    given = {"nsqd_http_address": ctx.params.get("url"), **ctx.params}
    try:
        found = connection.find(given)
        lookupds = list(found.context.lookupd_http_address)
        if of_lookupd is not None and lookupds:
            names = _together(found, lookupds, of_lookupd)
        else:
            names = _together(found, found.addresses(), of_nsqd)
    except _EXPECTED:
        return []
    return sorted({name for name in names if _HARMLESS.fullmatch(name)})


def _together(found: connection.Where, addresses: list[str], ask: Ask) -> list[str]:
    """The answers that came in time."""
    seconds = float(os.environ.get(VARIABLE, ANSWER_SECONDS))
    members = [Node(each, seconds, found.tls()) for each in addresses]
    answers = ask_all(members, lambda node: list(ask(node)))
    return [name for names in answers.good.values() for name in names]
