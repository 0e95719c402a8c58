"""Packages that only some parts need (the extras of pyproject.toml), and the error without them.

Penstock is installed from a checkout or from a wheel, so that is what the text names.
"""

_EXTRAS = {
    "cli": ("typer", "rich"),
    "auth": ("re2",),
    "spark": ("pyspark", "pyarrow", "pandas", "deltalake", "prometheus_client", "mmh3"),
    "admin": ("nicegui", "fastapi", "starlette", "uvicorn", "authlib", "httpx2"),
    "sql": ("duckdb", "numpy"),
}


def extra_of(error: ModuleNotFoundError) -> str:
    """The extra that has the missing module; empty when it is none of theirs."""
    package = (error.name or "").partition(".")[0]
    return next((extra for extra, packages in _EXTRAS.items() if package in packages), "")


def how_to_install(extra: str) -> str:
    return (
        f"install it with pip install '.[{extra}]' in a checkout, or of a wheel with"
        f" pip install 'FILE.whl[{extra}]'"
    )


def lacks_extra(what: str, extra: str, error: ImportError) -> str:
    return f"{what} needs the extra `{extra}`: {how_to_install(extra)} ({error})"
