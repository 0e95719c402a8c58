"""What the description of the API (OpenAPI) says of several installations: each of its paths below
`/i/{installation}`, too."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from fastapi import FastAPI

from penstock.nsqadmin.ground import BELOW

_METHODS = ("get", "put", "post", "delete")


def tell_of(app: FastAPI, base: str, names: Sequence[str]) -> None:
    """`names`: of the installations. To be called before the description is asked for."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = with_installations(plain(), base, names)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def with_installations(document: dict[str, Any], base: str, names: Sequence[str]) -> dict[str, Any]:
    place = {
        "name": "installation",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "enum": list(names)},
    }
    more = {}
    for path, item in document["paths"].items():
        twin = deepcopy(item)
        for method in _METHODS:
            if method in twin:
                operation = twin[method]
                operation["parameters"] = [place, *operation.get("parameters", ())]
                operation["operationId"] += "_of_installation"
        more[f"{base}{BELOW}{{installation}}{path.removeprefix(base)}"] = twin
    return {**document, "paths": {**document["paths"], **more}}
