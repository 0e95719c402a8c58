"""`penstock pipeline`: run a pipeline on Spark, or list them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.errors import PenstockError
from penstock.pipelines.runner import PIPELINES, load, run_by_name
from penstock.tools import connection
from penstock.tools.app import arg, group, verb
from penstock.tools.output import Output, WrongUse

app = group(
    "Work on the log with Spark.",
    "pipeline list",
    "pipeline run archive --topics orders --table /data/archive",
)


@verb(
    app,
    "pipeline run audit --topic orders --trace /data/trace --context prod",
    ignore_unknown_options=True, allow_extra_args=True, allow_interspersed_args=False,
)  # fmt: skip
def run(
    ctx: typer.Context,
    name: Annotated[str, arg("NAME", "a pipeline, or a table of --config's file")],
) -> int:
    """Run a pipeline: `run NAME --help` lists its settings.

    Its flags are its own, but for --context, which says where it reads."""
    context, rest = _without_context(ctx.args)

    def address_flags(explicit: frozenset[str]) -> list[str]:
        is_said = not explicit.isdisjoint(("url", "lookupd")) and not context
        return [] if is_said else _address_flags(context)

    return run_by_name(name, rest, address_flags=address_flags)


@verb(app, "pipeline list --json", name="list")
def list_pipelines() -> Output:
    """List the pipelines."""
    pipelines = [load(name) for name in PIPELINES]
    rows = [{"name": each.name, "summary": each.summary} for each in pipelines]
    return Output(rows, [f"{each.name:<10} {each.summary}" for each in pipelines])


def _without_context(words: Sequence[str]) -> tuple[str, list[str]]:
    context, rest, left = "", list[str](), iter(words)
    for word in left:
        flag, equals, text = word.lstrip("-").partition("=")
        if word.startswith("-") and flag == "context":
            context = text if equals else next(left, "")
            if not context:
                raise WrongUse("--context needs a name")
        else:
            rest.append(word)
    return context, rest


def _address_flags(context: str) -> list[str]:
    """Flags from a context, or from addresses in the environment; none without either."""
    found = connection.find({"context": context})
    if not found.name and not any(getattr(found.context, kind) for kind in connection.HTTP):
        return []
    found.tls()  # files that cannot be used are told of here, and not by Spark
    members = found.addresses()
    if len(members) > 1:
        raise PenstockError(f"it reads from one nsqd, give --url: {', '.join(members)}")
    url = members[0] if "://" in members[0] else f"http://{members[0]}"
    files = {
        "ca-file": found.context.tls_root_ca_file,
        "cert-file": found.context.tls_cert,
        "key-file": found.context.tls_key,
        "http-secret-file": found.context.http_secret_file,
    }
    return [f"--url={url}", *(f"--{name}={path}" for name, path in files.items() if path)]
