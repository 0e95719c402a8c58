"""The sink of the data source "penstock": the classes that Spark calls to write, batch and
streaming.

Tasks stage blocks on the broker. The driver commits all stages of a batch in one request, under
the query's id and the batch's number. nsqd keeps the last number of each query, so a batch that is
committed again (the driver died before it wrote that down) changes nothing: exactly once.

A stage that is not committed is never seen by anybody: those of a failed or a doubled attempt are
dropped or expire.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
from msgspec import field
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock import limits
from penstock.errors import ConfigError
from penstock.nsqdapi.calls import Owner, Stage, last_version
from penstock.spark.brokerapi import BrokerApi, first_of, name_of
from penstock.spark.options import FROM_SPARK, Natural, NsqdOptions, Positive
from penstock.spark.stager import Staged, Stager, abort
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.spark.rejects import RejectedTable

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"  # the id in the checkpoint's file `metadata`
_BATCH_ID = "streaming.sql.batchId"


class SinkOptions(NsqdOptions, frozen=True, kw_only=True, rename="camel"):
    """Options that Delta's sink has too (txnAppId, txnVersion) mean the same."""

    topic: str | None = None
    app: str | None = field(name="txnAppId", default=None)
    version: Natural | None = field(name="txnVersion", default=None)  # batch only
    stage_bytes: Positive = limits.SPARK_STAGE_BYTES
    retries: Natural = field(name="numRetries", default=limits.SPARK_STAGE_RETRIES)
    retry_ms: Natural = field(name="retryIntervalMs", default=limits.SPARK_RETRY_MS)
    secret_file: str | None = field(name="httpSecretFile", default=None)
    rejected_table: str | None = None  # of rows that cannot be messages; else they are errors
    rejected_rows_max: Natural | None = None  # of one batch


def read_sink_options(
    given: Mapping[str, str], streaming: bool, overwrite: bool = False
) -> SinkOptions:
    """ConfigError names the invalid option."""
    if overwrite and streaming:
        rule = (
            "a topic takes what is new (append): the whole result again with each batch would be "
            "new messages each time; write it in foreachBatch if that is meant"
        )
        raise ConfigError("outputMode", "complete", rule)
    if overwrite:
        raise ConfigError("mode", "overwrite", "messages are added to a topic: use append")
    found = SinkOptions.read(given, FROM_SPARK)
    if streaming:
        found.refuse("txnVersion", "a streaming query has one for each batch: the batch's id")
    elif (found.app is None) != (found.version is None):
        raise ConfigError("options", "txnAppId, txnVersion", "a batch has both of them, or neither")
    if found.rejected_table is None:
        found.refuse("rejectedRowsMax", "it is of the option rejectedTable")
    topic, size = found.topic, found.stage_bytes
    for name, value, is_wrong, rule in (
        ("txnAppId", found.app, found.app == "", "it is not empty"),
        ("topic", topic, topic is not None and not is_valid_name(topic),
         "1 to 64 of . a-z A-Z 0-9 _ -"),
        ("topic", topic, is_ephemeral(topic or ""), "an ephemeral topic keeps nothing on the disk"),
        ("url", None, not found.urls,
         'it has to be nsqd\'s HTTP address, as "http://127.0.0.1:4151"'),
        ("stageBytes", str(size), size > limits.STAGE_BYTES_MAX,
         f"it is at most {limits.STAGE_BYTES_MAX} (32 MiB): nsqd takes no larger block"),
        ("rejectedTable", "", found.rejected_table == "", "the path or URL of a Delta table"),
    ):  # fmt: skip
        if is_wrong:
            raise ConfigError(f"option {name}", value, rule)
    return found


class _Writer:
    """The common part of both writers. It is pickled: tasks and commits run in processes of their
    own."""

    def __init__(
        self, options: SinkOptions, columns: dict[str, str], store: Mapping[str, str]
    ) -> None:
        self._options = options
        self._rejected: RejectedTable | None = None
        if options.rejected_table is not None:
            from penstock.spark.rejects import RejectedTable  # it needs deltalake

            most = options.rejected_rows_max
            rows_max = limits.SPARK_REJECTED_ROWS_MAX if most is None else most
            self._rejected = RejectedTable(options.rejected_table, rows_max, store)
            self._rejected.prepare()  # in the driver: one that does not fit is known at once
        self._columns = columns
        self._attempt = uuid.uuid4().hex  # of this batch: the same in all of its tasks

    def _api(self, timeout_ms_min: int = 0) -> BrokerApi:
        """Of the first node that answers, where several of a cluster are named. It has the stages
        of this batch; if it dies, the batch is repeated at the next one."""
        url = first_of(self._options.urls, lambda one: self._opened(one, limits.SPARK_LEADER_MS, 0))
        return self._opened(url, max(self._options.timeout_ms, timeout_ms_min))

    def _opened(self, url: str, timeout_ms: int, retries: int | None = None) -> BrokerApi:
        options = self._options
        return BrokerApi(
            url,
            timeout_ms,
            options.retries if retries is None else retries,
            options.retry_ms,
            options.tls,
            options.secret_file,
        )

    def _stage(
        self, batches: Iterator[pa.RecordBatch], app: str | None, version: int | None
    ) -> Staged:
        """A stage belongs to that version of that app, as far as they are known."""
        task = TaskContext.get()
        query_id = task.getLocalProperty(_QUERY_ID) if task else None
        batch_id = task.getLocalProperty(_BATCH_ID) if task else None
        app = app or query_id
        version = version if version is not None or batch_id is None else int(batch_id)
        owner, rejects = None, None
        if app and version is not None:
            owner = Owner(self._scoped(app), version, self._attempt)
            rejects = self._rejected.rejects(app, version) if self._rejected else None
        elif self._rejected is not None:
            rule = "Spark names no query, so it is needed for the table of rejected rows"
            raise ConfigError("option txnAppId", None, rule)
        number = task.partitionId() if task else 0
        where = f"task {number}" if task else "the task"
        turn = crc32((app or self._attempt).encode()) + (version or 0) + number
        options = self._options
        with self._api() as api:
            stager = Stager(
                api, self._columns, options.topic, where, options.stage_bytes, owner, rejects, turn
            )
            try:
                for batch in batches:
                    stager.add(batch)
                staged = stager.finish()
            except BaseException:
                stager.abort()
                raise
        return replace(staged, query_id=query_id)

    def _commit(
        self, app: str, version: int, messages: list[Staged], is_next: bool = False
    ) -> None:
        """Rejected rows first: the published messages are then exactly those missing in their
        table. `is_next`: a later version cannot be there, or others would be passed over."""
        if self._rejected is not None:
            rejected = [batch for one in messages for batch in one.rejected]
            counted = f"{name_of(self._options.urls[0])}/{self._scoped(app)}"
            self._rejected.commit(counted, version, rejected)
        stages = _stages(messages)
        if not stages:
            return
        with self._api(limits.SPARK_COMMIT_MS) as api:
            committed = api.commit(self._scoped(app), version, stages)
            if committed.repeated:
                logger.info("version %d of %s was committed before", version, app)
                abort(api, stages)
                if is_next and (last := api.ask(last_version(self._scoped(app)))) != version:
                    rule = f"it is older than the topic, which has batch {last} of this query"
                    raise ConfigError("checkpointLocation", f"of batch {version}", rule)

    def _scoped(self, app: str) -> str:
        """As with Delta, a version belongs to a table: two writes of one batch into two topics are
        two, although both have the same number."""
        return app if self._options.topic is None else f"{app}/{self._options.topic}"

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        with self._api() as api:
            abort(api, _stages(_present(messages)))


class BatchWriter(_Writer, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator, *self._name())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(*self._name(), _present(messages))

    def _name(self) -> tuple[str, int]:
        return self._options.app or self._attempt, self._options.version or 0


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator, self._options.app, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        present = _present(messages)
        app = self._options.app or next((m.query_id for m in present if m.query_id), None)
        if app is None and present:
            raise ConfigError("option txnAppId", None, "Spark names no query, so it is needed")
        self._commit(app or "", batchId, present, is_next=self._options.app is None)


def _present(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _stages(messages: list[Staged]) -> list[Stage]:
    return [stage for message in messages for stage in message.stages]
