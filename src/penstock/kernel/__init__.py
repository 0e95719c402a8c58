"""The kernel: one interface (`interface.py`, `bulk_interface.py`), two forms, bound here once.

`fast/` is compiled, `pure/` is plain Python: same events, same bytes. The environment variable
`PENSTOCK_KERNEL` chooses: `compiled`, `pure`, or unset for compiled where it was built and pure
otherwise. All other packages import the names from here; only tests ask for a form with `load`.
`Engine`, `Bulk`, `Tail`, `Window` and `Conn` are what both forms are, and what code is typed by
(`contract.py`); `new_engine` and `new_bulk` make those of the form that is bound.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import cast, get_args

from penstock.kernel.batch_interface import (
    BatchCheck,
    BatchHeader,
    Columns,
    Headers,
    Section,
    Values,
)
from penstock.kernel.bulk_interface import Bulk, BulkResult, BulkStatus
from penstock.kernel.contract import Form, Kernel
from penstock.kernel.filter_interface import Filter, Rule
from penstock.kernel.interface import (
    BAD_COUNT,
    BAD_MESSAGE,
    BadPub,
    Cause,
    Conn,
    Cut,
    Engine,
    Event,
    Held,
    Locality,
    Order,
    Pack,
    Source,
    Stray,
    StrayRecord,
    Verb,
    Window,
)
from penstock.kernel.tail_interface import Tail
from penstock.kernel.trace_interface import TRACE_ALL, TraceKind

ENVIRONMENT_NAME = "PENSTOCK_KERNEL"
_PACKAGES = {"compiled": "penstock.kernel.fast", "pure": "penstock.kernel.pure"}
_MODULES = {
    "crc32c": ("crc32c",),
    "murmur3": ("murmur3_32",),
    "headers": ("parse_headers",),
    "hexid": ("id_to_hex", "hex_to_id"),
    "batch": (
        "id_at",
        "id_index",
        "blank",
        "encode_batch",
        "check_batch",
        "decode_header",
        "decode_bodies",
        "decode_sections",
    ),
    "bulk": ("Bulk",),
    "columns": ("decode_columns", "encode_columns"),
    "traceruns": ("expand_events", "pick_events"),
    "engine": ("Engine",),
}


def load(form: Form) -> SimpleNamespace:
    """The names of one form. ImportError when it is asked for and not there."""
    names: dict[str, object] = {}
    for module_name, members in _MODULES.items():
        module = _import(form, module_name)
        names.update((member, getattr(module, member)) for member in members)
    return SimpleNamespace(IMPLEMENTATION=form, **names)


def _import(form: Form, module_name: str) -> ModuleType:
    try:
        return import_module(f"{_PACKAGES[form]}.{module_name}")
    except ImportError as error:
        if form == "pure":
            raise
        raise ImportError(
            f"the compiled kernel cannot be imported ({error}); build it with "
            f"`python setup.py build_ext --inplace`, or set {ENVIRONMENT_NAME}=pure"
        ) from error


def _bind() -> SimpleNamespace:
    wanted = os.environ.get(ENVIRONMENT_NAME, "")
    if wanted == "pure":
        return load("pure")
    if wanted == "compiled":
        return load("compiled")
    if wanted:
        raise ImportError(
            f"{ENVIRONMENT_NAME}={wanted!r} is not one of {', '.join(get_args(Form))}"
        )
    try:
        return load("compiled")
    except ImportError as error:
        logging.getLogger("penstock").warning("%s; going on with the slower pure form", error)
        return load("pure")


_bound = cast(Kernel, _bind())
IMPLEMENTATION = _bound.IMPLEMENTATION
new_engine = _bound.Engine
new_bulk = _bound.Bulk
crc32c = _bound.crc32c
murmur3_32 = _bound.murmur3_32
parse_headers = _bound.parse_headers
id_to_hex = _bound.id_to_hex
hex_to_id = _bound.hex_to_id
id_at = _bound.id_at
id_index = _bound.id_index
blank = _bound.blank
encode_batch = _bound.encode_batch
check_batch = _bound.check_batch
decode_header = _bound.decode_header
decode_bodies = _bound.decode_bodies
decode_sections = _bound.decode_sections
decode_columns = _bound.decode_columns
encode_columns = _bound.encode_columns
expand_events = _bound.expand_events
pick_events = _bound.pick_events


__all__ = [
    "BAD_COUNT",
    "BAD_MESSAGE",
    "ENVIRONMENT_NAME",
    "IMPLEMENTATION",
    "TRACE_ALL",
    "BadPub",
    "BatchCheck",
    "BatchHeader",
    "Bulk",
    "BulkResult",
    "BulkStatus",
    "Cause",
    "Columns",
    "Conn",
    "Cut",
    "Engine",
    "Event",
    "Filter",
    "Form",
    "Headers",
    "Held",
    "Locality",
    "Order",
    "Pack",
    "Rule",
    "Section",
    "Source",
    "Stray",
    "StrayRecord",
    "Tail",
    "TraceKind",
    "Values",
    "Verb",
    "Window",
    "blank",
    "check_batch",
    "crc32c",
    "decode_bodies",
    "decode_columns",
    "decode_header",
    "decode_sections",
    "encode_batch",
    "encode_columns",
    "expand_events",
    "hex_to_id",
    "id_at",
    "id_index",
    "id_to_hex",
    "load",
    "murmur3_32",
    "new_bulk",
    "new_engine",
    "parse_headers",
    "pick_events",
]
