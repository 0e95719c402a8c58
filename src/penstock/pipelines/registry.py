"""Which pipelines there are, each loaded only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.command.extras import lacks_extra
from penstock.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from penstock.pipelines.frame import Pipeline

# By name: the module that has it as `PIPELINE`.
PIPELINES: dict[str, str] = {
    "archive": "penstock.pipelines.archive",
    "replay": "penstock.pipelines.replay",
    "audit": "penstock.pipelines.audit.program",
    "trace": "penstock.pipelines.trace",
}


def load(name: str) -> Pipeline:
    """The `PIPELINE` of that module."""
    if name not in PIPELINES:
        raise NotFound("pipeline", name)
    try:
        found: Pipeline = import_module(PIPELINES[name]).PIPELINE
    except ModuleNotFoundError as error:
        raise ConfigError("pipeline", name, lacks_extra("it", "spark", error)) from error
    return found
