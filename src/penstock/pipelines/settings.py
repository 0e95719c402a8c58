"""The settings of a pipeline: one table for the command line, the environment and the TOML file.

The first source that has a value wins: command line, environment (`PENSTOCK_ARCHIVE_TABLE`), the
pipeline's table in the file (`[archive]`), the top of the file (common settings only), default.

A file may hold several pipelines, each in a table of its own name. A table with another name says
which pipeline it is for (`pipeline = "archive"`), and is run by that name. The table `[conf]` holds
settings of Spark itself. A key that nobody knows is an error that names it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.command.environment import check_table_names, nearest, prefix_of
from penstock.command.flags import (
    Flag,
    Kind,
    UsageError,
    parse_command_line,
    read_environment,
    values_of_document,
    variable,
)
from penstock.errors import ConfigError
from penstock.net.tls import TlsFiles

if TYPE_CHECKING:
    from penstock.spark.brokerapi import BrokerApi

PIPELINE_KEY = "pipeline"
CONF_TABLE = "conf"


@dataclass(frozen=True)
class Setting(Flag):
    required: bool = False

    def check(self, value: Any) -> None:
        if self.required and value in ("", ()):
            raise ConfigError(self.name, value, f"it is needed: {self.help}")
        super().check(value)


TLS_OPTIONS = {"caFile": "ca-file", "certFile": "cert-file", "keyFile": "key-file"}  # of Spark's

COMMON: tuple[Setting, ...] = (
    Setting("config", Kind.STRING, "", "a TOML file with settings"),
    Setting("url", Kind.STRING, "http://127.0.0.1:4151", "nsqd's HTTP address, or several with"
         " commas: of any nsqds for archive and trace, of one cluster's nodes otherwise"),
    Setting("ca-file", Kind.STRING, "", "authorities for https; the system's otherwise"),
    Setting("cert-file", Kind.STRING, "", "certificate to show to nsqd"),
    Setting("key-file", Kind.STRING, "", "key of that certificate"),
    Setting("http-secret-file", Kind.STRING, "", "file with nsqd's secret for changes"),
    Setting("master", Kind.STRING, "", "where Spark runs; the default is this process, local[*,4],"
         " unless spark-submit says"),
    Setting("conf", Kind.REPEATED, (), "a setting of Spark, as spark.executor.memory=2g"),
    Setting("spark-log", Kind.STRING, "error", "what Spark itself may say",
         choices=("off", "error", "warn", "info")),
    Setting("outage-wait", Kind.DURATION, 60 * limits.SECOND, "how long a run that ends by itself"
         " waits for nsqd, the table or the disk to come back; one that goes on waits as long as"
         " it takes", bounds=(0, None)),
    Setting("metrics-address", Kind.STRING, "", "host:port where Prometheus may ask for the"
         " figures of this run; default: nowhere"),
    Setting("json", Kind.BOOL, False, "progress as JSON on stdout, one report a line"),
    Setting("report-every", Kind.DURATION, 10 * limits.SECOND, "time between reports, where no"
         " terminal watches", bounds=(limits.SECOND // 10, None)),
    Setting("no-report", Kind.BOOL, False, "do not tell nsqadmin about this run, by messages of"
         " nsqd's topic _pipelines"),
)  # fmt: skip


class Settings:
    """Values by the name of the setting, each read by its kind."""

    def __init__(self, values: Mapping[str, Any], explicit: Iterable[str] = ()) -> None:
        self.values = dict(values)
        self.explicit = frozenset(explicit)  # what somebody has set

    def text(self, name: str) -> str:
        return str(self.values[name])

    def number(self, name: str) -> int:
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self.values[name])

    def seconds(self, name: str) -> float:
        """The seconds of a duration."""
        return self.number(name) / limits.SECOND

    @property
    def conf(self) -> dict[str, str]:
        """Spark's own settings."""
        return options_of("conf", self.texts("conf"))


def resolve(
    name: str,
    table: Sequence[Setting],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    document: Mapping[str, Any],
) -> Settings:
    """UsageError, HelpWanted and ConfigError as the flags of daemons have it. `name` is that of
    the pipeline, or of its table in the file."""
    settings = (*COMMON, *table)
    prefix = prefix_of(name)
    own = {variable(setting, prefix) for setting in settings}
    tables = [key for key, content in document.items() if isinstance(content, dict)]
    check_table_names(name, tables, own, environment)
    explicit = ChainMap(
        parse_command_line(settings, arguments),
        read_environment(settings, environment, prefix),
        _from_table(name, settings, document.get(name, {})),
        _from_table("", COMMON, {k: v for k, v in document.items() if not isinstance(v, dict)}),
    )
    values = {setting.name: explicit.get(setting.name, setting.default) for setting in settings}
    in_file = []
    for key, value in document.get(CONF_TABLE, {}).items():
        if isinstance(value, dict | list):
            rule = 'a text, with the name in quotes: "spark.executor.memory" = "2g"'
            raise ConfigError(f"conf.{key}", value, rule)
        in_file.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    values["conf"] = (*in_file, *values["conf"])  # of two the later one counts
    for text in values["conf"]:
        if not text.partition("=")[1] or not text.partition("=")[0].strip():
            raise UsageError(f'invalid value "{text}" for flag -conf: as spark.executor.memory=2g')
    for setting in settings:
        setting.check(values[setting.name])
    return Settings(values, explicit)


def tls_options(settings: Settings) -> dict[str, str]:
    """Of Spark's source and sink."""
    found = {name: settings.text(own) for name, own in TLS_OPTIONS.items()}
    return {name: value for name, value in found.items() if value}


def nsqd_of(
    settings: Settings,
    url: str = "",
    timeout_ms: int = limits.SPARK_REQUEST_MS,
    retries: int = limits.SPARK_RETRIES,
) -> BrokerApi:
    """Unless one is given, the first of `url` that answers."""
    from penstock.spark.brokerapi import BrokerApi, first_of
    from penstock.spark.options import comma_separated

    if not url:
        urls = comma_separated(settings.text("url")) or ("",)
        url = first_of(urls, lambda one: nsqd_of(settings, one, limits.SPARK_LEADER_MS, 0))
    authorities, cert, key = map(settings.text, TLS_OPTIONS.values())
    tls = TlsFiles(authorities, cert, key)
    secret_file = settings.text("http-secret-file") or None
    return BrokerApi(url, timeout_ms, retries, tls=tls, secret_file=secret_file)


# --- the file ---


def config_path(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The path of the file: it has to be read before the rest of the line can be parsed, because it
    may name the pipeline."""
    path = environment.get(variable(COMMON[0], prefix_of(name)), "")
    for word, following in pairwise([*arguments, ""]):
        flag, equals, text = word.lstrip("-").partition("=")
        if word.startswith("-") and flag == "config":
            path = text if equals else following
    return path


def choose(name: str, document: Mapping[str, Any], pipelines: Iterable[str]) -> str:
    """The pipeline of a name. UsageError when it is neither a pipeline nor a table of the file."""
    known = tuple(pipelines)
    for table, content in document.items():
        if isinstance(content, dict) and table != CONF_TABLE:
            _pipeline_of(table, content, known)
    if name in known or isinstance(document.get(name), dict):
        return _pipeline_of(name, document.get(name, {}), known)
    raise UsageError(f"no such pipeline: {name}; there are {', '.join(known)}")


def _pipeline_of(table: str, content: Mapping[str, Any], known: Sequence[str]) -> str:
    pipeline = content.get(PIPELINE_KEY, table)
    if pipeline not in known or (table in known and pipeline != table):
        rule = f"a table is named after a pipeline ({', '.join(known)}), or has the key pipeline"
        raise ConfigError("table", f"[{table}]", rule)
    return str(pipeline)


def _from_table(
    table: str, settings: Sequence[Setting], content: Mapping[str, Any]
) -> dict[str, Any]:
    by_key = {setting.file_key: setting for setting in settings if setting.name != "config"}
    where = f"{table}." if table else ""
    for key, value in content.items():
        if key not in by_key and not (key == PIPELINE_KEY and table):
            near = nearest(key, by_key)
            meant = f"; is it {near}?" if near else ""
            raise ConfigError(f"{where}{key}", value, _known(by_key.values()) + meant)
    return values_of_document(by_key.values(), content, where)


def _known(settings: Iterable[Setting]) -> str:
    return "the keys are " + ", ".join(setting.file_key for setting in settings)


# --- options of delta-rs for an object store, some of them secret ---
#
# A command line can be read by everybody on the machine (`ps`), so secrets are better in the
# settings file or in the environment, where delta-rs finds AWS_SECRET_ACCESS_KEY and the like by
# itself. No value is ever part of an error, of a report or of one of Spark's plans.

_PAIR = "NAME=VALUE, as AWS_REGION=eu-west-1 (what was given is not shown: it may be a secret)"

NSQDS = (
    Setting("lookupd", Kind.STRINGS, (), "nsqlookupds' HTTP addresses: all nsqds that they know"
         " are read, instead of url"),
    Setting("gone-brokers", Kind.STRINGS, (), "nsqds (host:port) that are gone for good, so that"
         " nothing waits for them"),
)  # fmt: skip
STORAGE_OPTION = Setting("storage-option", Kind.REPEATED, (), "of delta-rs, for a table that is no"
    " local path, as AWS_REGION=eu-west-1; secrets are better in the file or the environment",
)  # fmt: skip
CATALOG_TABLE = Setting("catalog-table", Kind.STRING, "", "let delta-spark write, with --conf="
    "spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.1, into this table of Spark's catalog,"
    " which is made over --table if missing; delta.`PATH` is one of no catalog",
)  # fmt: skip


def storage_options(settings: Settings) -> dict[str, str]:
    return options_of("storage-option", settings.texts("storage-option"))


def options_of(where: str, texts: Iterable[str]) -> dict[str, str]:
    """ConfigError when one is not NAME=VALUE; of two with a name the later one counts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(where, "***", _PAIR)
        found[name.strip()] = value
    return found


def options_of_file(path: str) -> dict[str, str]:
    """One a line, without empty lines and comments (#)."""
    try:
        lines = [line.strip() for line in Path(path).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("storage-options-file", path, f"it can't be read: {error}") from error
    given = [line for line in lines if line and not line.startswith("#")]
    found = options_of(f"storage-options-file {path}", given)
    return {name: value.strip() for name, value in found.items()}
