"""One SQL statement over topics and tables: read-only, with errors for people.

Spark's own parser says what a statement is, so a write is found wherever the grammar allows one
(`WITH ... INSERT`, `FROM ... INSERT`). The check guards against mistakes, not against enemies:
whoever can run this can do all that Spark's functions can do, with his own rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import QueryRefused
from penstock.pipelines.sqlviews import Catalogue, Source, parts_of

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_WRITING = (f"{_LOGICAL}Command", f"{_LOGICAL}ParsedStatement")  # with all that extends them
_WRITING_NODES = frozenset({"InsertIntoDir", "UnresolvedExecuteImmediate", "ScriptTransformation"})
_READING_COMMANDS = frozenset(
    {
        "DescribeColumn",
        "DescribeFunction",
        "DescribeQueryCommand",
        "DescribeRelation",
        "ExplainCommand",
        "ShowColumns",
        "ShowFunctions",
    }
)
_LISTING = frozenset({"ShowTables", "ShowViews"})
_EXPLAIN = re.compile(r"\s*explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?", re.IGNORECASE)
_RULE = "only statements that read are run here: SELECT, WITH, VALUES, DESCRIBE, EXPLAIN, SHOW"
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\]\s*")


class Door:
    def __init__(self, spark: SparkSession, catalogue: Catalogue) -> None:
        self._spark = spark
        self._catalogue = catalogue
        self._views: dict[str, Source] = {}

    def query(self, text: str) -> DataFrame:
        """What a statement gives. QueryRefused says why not."""
        statement = text.strip().rstrip(";").strip()
        if not statement:
            raise QueryRefused("there is no statement")
        kinds = self._kinds(statement)
        if kinds[0] in _LISTING:
            return self._listing()
        if kinds[0] == "ExplainCommand":
            explained = statement[_EXPLAIN.match(statement).end() :]  # type: ignore[union-attr]
            self._kinds(explained)
            self._analysed(explained)
        return self._analysed(statement)

    def forget(self) -> None:
        """Drop the views: Spark freezes what a view reads when it is first planned."""
        for name in self._views:
            self._spark.catalog.dropTempView(name)
        self._views.clear()
        self._catalogue.forget_topics()

    def _kinds(self, statement: str) -> list[str]:
        """The names of the parsed statement's nodes, the root first."""
        from pyspark.errors import PySparkException

        session: Any = self._spark
        try:
            plan = session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        except PySparkException as error:
            raise QueryRefused(said(error)) from error
        writing = [session._jvm.java.lang.Class.forName(name) for name in _WRITING]
        kinds = []
        for node in _nodes(plan):
            kind = node.getClass().getSimpleName().rstrip("$")
            kinds.append(kind)
            writes = kind in _WRITING_NODES or any(its.isInstance(node) for its in writing)
            if writes and not (len(kinds) == 1 and kind in _READING_COMMANDS | _LISTING):
                raise QueryRefused(f"{_RULE}; this is {_words(kind)}")
        return kinds

    def _analysed(self, statement: str) -> DataFrame:
        from pyspark.errors import AnalysisException, PySparkException

        while True:
            try:
                return self._spark.sql(statement)
            except AnalysisException as error:
                if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                    raise QueryRefused(said(error)) from error
                self._make_view((error.getMessageParameters() or {})["relationName"])
            except PySparkException as error:
                raise QueryRefused(said(error)) from error

    def _make_view(self, relation: str) -> None:
        parts = parts_of(relation)
        if len(parts) > 1:
            self._catalogue.dotted(parts)
        source = self._catalogue.source(parts[0])
        name = parts[0].replace("`", "``")
        if parts[0] in self._views:
            raise QueryRefused(f"Spark does not find the view {name} that it has made")
        frame = self._catalogue.frame(self._spark, source)
        frame.createOrReplaceTempView(f"`{name}`")
        self._views[parts[0]] = source

    def _listing(self) -> DataFrame:
        rows = [tuple(source) for source in self._catalogue.sources()]
        return self._spark.createDataFrame(rows, "name string, kind string, place string")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _words(kind: str) -> str:
    """InsertIntoStatement: INSERT INTO."""
    name = re.sub(r"(Statement|Command|AsSelect)$", "", kind).removeprefix("Unresolved")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()


def said(error: PySparkException) -> str:
    """Spark's words without its frames; the mark below a syntax error stays."""
    text = str(error).strip().partition("\nJVM stacktrace")[0]
    text = _STATE.sub("", _CONDITION.sub("", text))
    head, separator, rest = text.partition("\n== SQL ==\n")
    head = head.partition(";\n")[0].partition("\n'")[0].strip()
    return f"{head}\n{rest.rstrip()}" if separator else head
