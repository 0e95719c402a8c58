"""What delta-rs needs to know of an object store: names and values, some of them secret.

A command line can be read by everybody on the machine (`ps`), so secrets are better in the settings
file or in the environment, where delta-rs finds AWS_SECRET_ACCESS_KEY and the like by itself. No
value is ever part of an error, of a report or of one of Spark's plans.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.command.flags import Kind
from penstock.errors import ConfigError
from penstock.pipelines.settings import Setting, Settings

_NAME = "storage-option"
_RULE = "NAME=VALUE, as AWS_REGION=eu-west-1 (what was given is not shown: it may be a secret)"

STORAGE_OPTION = Setting(
    _NAME,
    Kind.REPEATED,
    (),
    "of delta-rs, for a table that is no local path, as AWS_REGION=eu-west-1; secrets are better "
    "in the file or the environment",
)


def storage_options(settings: Settings) -> dict[str, str]:
    return options_of(_NAME, settings.texts(_NAME))


def options_of(where: str, texts: Iterable[str]) -> dict[str, str]:
    """ConfigError when one is not NAME=VALUE; of two with a name the later one counts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(where, "***", _RULE)
        found[name.strip()] = value
    return found


def read_file(path: str) -> dict[str, str]:
    """One a line; empty lines and those that begin with # are left out."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("storage-options-file", path, f"it can't be read: {error}") from error
    given = [line for line in lines if line and not line.startswith("#")]
    found = options_of(f"storage-options-file {path}", given)
    return {name: value.strip() for name, value in found.items()}
