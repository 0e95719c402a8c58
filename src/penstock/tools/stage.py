"""`penstock stage`: list and discard uncommitted stages of programs."""

import time
from collections.abc import Iterator
from typing import Annotated

from penstock.command.terminal import span
from penstock.tools.app import Yes, arg, group, opt, verb
from penstock.tools.connection import Http, confirm_on
from penstock.tools.nodes import ask_each
from penstock.tools.output import Column, Output, Row, columns_table, size

COLUMNS: tuple[Column, ...] = (
    ("app", "app", lambda name: name or "(none named)"),
    ("versions", "versions", lambda all: ", ".join(map(str, all[:3])) + ", ..." * (len(all) > 3)),
    ("stages", "stages", "{:,}".format),
    ("size", "bytes", size),
    ("staged last", "last_staged_at", lambda at_s: f"{span(max(time.time() - at_s, 0))} ago"),
)

_LISTED = ("stages", "bytes", "apps", "apps_total")

app = group(
    "Staged blocks of Spark and other programs, which wait for their commit.",
    "stage list",
    "stage abort nightly --version 7 --yes",
)


@verb(app, "stage list --json", name="list")
def list_stages(at: Http) -> Output:
    """List staged blocks, by app."""
    found = ask_each(at.members(), lambda node: node.get("/stage/list", None, *_LISTED))
    return found.output(_lines)


def _lines(address: str, found: Row) -> Iterator[str]:
    yield f"{address}: {found['stages']:,} stages, {size(found['bytes'])}"
    if found["apps"]:
        yield from columns_table(COLUMNS, found["apps"], left=2)
    if found["apps_total"] > len(found["apps"]):
        yield f"and {found['apps_total'] - len(found['apps']):,} smaller apps"


@verb(app, "stage abort nightly --yes")
def abort(
    name: Annotated[str, arg("APP", 'as listed; "" for writers that name no app')],
    at: Http,
    version: Annotated[int | None, opt("N", "only that version")] = None,
    yes: Yes = False,
) -> Output:
    """Give up what an app has staged; asks for --yes.

    A program that is still at work then fails, and begins its batch again. What was committed
    stays."""
    whose = name or "writers that name no app"
    members = at.members(changes=True)
    confirm_on(members, yes, f"give up what {whose} staged", name)
    target = {"app": name, "version": version}
    found = ask_each(members, lambda node: node.post("/stage/abort", target, "aborted"))
    return found.output(
        lambda address, one: [f"{address}: {one['aborted']:,} stages of {whose} given up"]
    )
