"""The pipelines, each loaded on first use."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.command.extras import lacks_extra
from penstock.command.flags import Kind
from penstock.durations import format_duration
from penstock.errors import ConfigError, NotFound
from penstock.pipelines.settings import COMMON, Setting

if TYPE_CHECKING:
    from penstock.pipelines.runner import Pipeline

# By name: the module that has it as `PIPELINE`.
PIPELINES: dict[str, str] = {
    "archive": "penstock.pipelines.archive",
    "replay": "penstock.pipelines.replay",
    "audit": "penstock.pipelines.audit.program",
    "trace": "penstock.pipelines.trace",
}


def load(name: str) -> Pipeline:
    if name not in PIPELINES:
        raise NotFound("pipeline", name)
    try:
        found: Pipeline = import_module(PIPELINES[name]).PIPELINE
    except ModuleNotFoundError as error:
        raise ConfigError("pipeline", name, lacks_extra("it", "spark", error)) from error
    return found


# --- an example of the settings ---

_HEAD = """\
# Settings of the pipelines. A commented line shows the default, or an example. Each pipeline has a
# table of its own name; another name works too, when it says which pipeline it is for:
#
#     [orders-archive]
#     pipeline = "archive"
#     topics = ["orders"]
#
# runs as: penstock pipeline run orders-archive --config pipelines.toml
# The environment goes before this file (PENSTOCK_ARCHIVE_TABLE), the command line before that.
# What stands above the first table is for all of them, and may stand in each table too.
"""
_CONF = """\
# Settings of Spark itself.
[conf]
# "spark.driver.memory" = "2g"
"""
_WIDTH = 96


def example(names: Sequence[str]) -> str:
    common = [setting for setting in COMMON if setting.name not in ("config", "conf")]
    parts = [_HEAD, _lines(common), _CONF]
    for name in names:
        pipeline = load(name)
        parts.append(f"# {pipeline.summary}\n[{name}]\n{_lines(pipeline.settings)}")
    return "\n".join(parts)


def _lines(settings: Sequence[Setting]) -> str:
    text = ""
    for setting in settings:
        allowed = f" ({', '.join(setting.choices)})" if setting.choices else ""
        needed = " (needed)" if setting.required else ""
        for line in textwrap.wrap(setting.help + allowed + needed, _WIDTH):
            text += f"# {line}\n"
        value = setting.default
        value = format_duration(value) if setting.kind is Kind.DURATION else value
        text += f"# {setting.file_key} = {json.dumps(value)}\n"
    return text
