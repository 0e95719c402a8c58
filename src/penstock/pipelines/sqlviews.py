"""What a SQL statement may read, under which names; a view is made when a statement asks for it.

Topics of nsqd and tables of a lake become temporary views. Making all of them first would cost
Spark a planning process for each topic, so Spark is asked to analyse the statement, says which name
it does not know, and gets that view; then it is asked again. That leaves the grammar of SQL to
Spark: a name in a subquery, or one that a WITH clause defines, is none of our business.

Spark's names of views know no case, those of topics do. The exact name goes first, then the only
one that differs by case. A table goes before a topic of the same name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import ConfigError, FetchFailed, QueryRefused
from penstock.pipelines import lakeread
from penstock.spark.brokerapi import BrokerApi

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES_SHOWN_MAX = 20


class Source(NamedTuple):
    name: str  # of the view
    kind: str  # "topic" or "table"
    place: str  # the topic's name, or the table's path


class Catalogue:
    """`tables` and `topics` are view name to path, and view name to topic. Topics of nsqd that are
    not among them have views of their own name; nsqd is asked when a name is in no table."""

    def __init__(
        self,
        url: str,
        tables: Mapping[str, str],
        topics: Mapping[str, str] | None = None,
        topics_of: Callable[[str], Iterable[str]] | None = None,
        options: Mapping[str, str] | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._named = {name: Source(name, "table", path) for name, path in tables.items()}
        for name, topic in (topics or {}).items():
            self._named[name] = Source(name, "topic", topic)
        self._topics_of = topics_of or topics_at
        self._options = dict(options or {})  # of topics
        self._storage = dict(storage or {})  # of tables
        self._topics: dict[str, Source] | None = None
        self._silence = ""  # why nsqd has told nothing

    def sources(self) -> list[Source]:
        everything = {**self._topics_there(), **self._named}
        return sorted(everything.values(), key=lambda source: (source.kind, source.name))

    def source(self, name: str) -> Source:
        """QueryRefused says which there are."""
        return (
            self._find(self._named, name)
            or self._find(self._topics_there(), name)
            or (self._unknown(name))
        )

    def forget_topics(self) -> None:
        """Ask nsqd anew when a name is wanted."""
        self._topics = None

    def frame(self, spark: SparkSession, source: Source) -> DataFrame:
        if source.kind == "table":
            return lakeread.read_table(spark, source.place, options=self._storage)
        options = {"includeHeaders": "true", **self._options}
        reader = spark.read.format("penstock").options(**options)
        return reader.option("url", self._url).option("subscribe", source.place).load()

    def _find(self, sources: Mapping[str, Source], name: str) -> Source | None:
        if name in sources:
            return sources[name]
        alike = [source for source in sources.values() if source.name.lower() == name.lower()]
        if len(alike) > 1:
            names = " and ".join(source.name for source in alike)
            raise QueryRefused(f"{names} differ only by case, which SQL does not tell apart; "
                               "give one another name: --topic NAME=TOPIC")  # fmt: skip
        return alike[0] if alike else None

    def _topics_there(self) -> dict[str, Source]:
        if self._topics is None:
            try:
                names = list(self._topics_of(self._url))
            except FetchFailed as error:
                names, self._silence = [], f"; no topics, because {error}"
            self._topics = {name: Source(name, "topic", name) for name in names}
        return self._topics

    def _unknown(self, name: str) -> Source:
        names = [source.name for source in self.sources()]
        close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], 3, 0.6)
        near = [n for n in names if n.lower() in close]
        if name in names:
            hint = f"write {quoted(name)}"
        elif near:
            hint = f"did you mean {' or '.join(map(quoted, near))}?"
        else:
            shown = ", ".join(map(quoted, names[:_NAMES_SHOWN_MAX])) or "nothing"
            more = len(names) - _NAMES_SHOWN_MAX
            hint = f"there is {shown}" + (f" and {more} more" if more > 0 else "")
        raise QueryRefused(f"no table or topic {name}: {hint}{self._silence}")

    def dotted(self, parts: list[str]) -> Source:
        """a.b without quotes is a table b in a database a for SQL; here it can only be a name that
        has to be quoted."""
        name = ".".join(parts)
        if any(source.name.lower() == name.lower() for source in self.sources()):
            raise QueryRefused(f"a name with a dot is quoted: write {quoted(name)}")
        return self._unknown(name)


def topics_at(url: str, ca_file: str | None = None) -> list[str]:
    with BrokerApi(url, ca_file=ca_file) as api:
        return sorted(api.positions().topics)


def quoted(name: str) -> str:
    """As it is written in SQL."""
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def parts_of(relation: str) -> list[str]:
    """Spark's own way to write a name, `a`.`b`, in its parts."""
    return [part.replace("``", "`") for part in _QUOTED.findall(relation)] or [relation]


def read_pairs(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """NAME=VALUE of the command line. ConfigError for what is not."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip() or "`" in name:
            raise ConfigError(option, text, f"it has to be as {example}")
        if name.strip() in found:
            raise ConfigError(option, text, "the name is given twice")
        found[name.strip()] = value.strip()
    return found
