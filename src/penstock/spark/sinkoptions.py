"""The options of the sink. Those that Delta's sink has too (txnAppId, txnVersion) mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock import limits
from penstock.errors import ConfigError
from penstock.spark.values import Values
from penstock.wire.names import is_ephemeral, is_valid_name

NAMES = (
    "url",
    "topic",
    "txnAppId",
    "txnVersion",
    "stageBytes",
    "requestTimeoutMs",
    "numRetries",
    "retryIntervalMs",
    "caFile",
    "httpSecretFile",
    "rejectedTable",
    "rejectedRowsMax",
)
_SPARK_NAMES = ("checkpointLocation", "queryName")  # Spark's own: it hands them on


@dataclass(frozen=True, slots=True)
class SinkOptions:
    url: str
    topic: str | None
    app: str | None
    version: int | None  # batch only
    stage_bytes: int
    timeout_ms: int
    retries: int
    retry_ms: int
    ca_file: str | None
    secret_file: str | None
    rejected_table: str | None  # of rows that cannot be messages; without it they are errors
    rejected_rows_max: int  # of one batch


def read_sink_options(given: Mapping[str, str], streaming: bool) -> SinkOptions:
    """ConfigError names what is wrong."""
    own = {name: value for name, value in given.items() if name.lower() not in _SPARK_LOWER}
    values = Values(own, NAMES)
    values.refuse("path", "a topic has no path: it is named by the option topic")
    values.refuse_unknown()
    app, version = values.get("txnAppId"), _version(values)
    if streaming:
        values.refuse("txnVersion", "a streaming query has one for each batch: the batch's id")
    elif (app is None) != (version is None):
        raise ConfigError("options", "txnAppId, txnVersion", "a batch has both of them, or neither")
    if app is not None and not app:
        raise ConfigError("option txnAppId", app, "it is not empty")
    topic = values.get("topic")
    if topic is not None and not is_valid_name(topic.encode()):
        raise ConfigError("option topic", topic, "1 to 64 of . a-z A-Z 0-9 _ -")
    if topic is not None and is_ephemeral(topic):
        raise ConfigError("option topic", topic, "an ephemeral topic keeps nothing on the disk")
    return SinkOptions(
        url=values.required("url", 'nsqd\'s HTTP address, as "http://127.0.0.1:4151"'),
        topic=topic,
        app=app,
        version=version,
        stage_bytes=_stage_bytes(values),
        timeout_ms=values.number("requestTimeoutMs", limits.SPARK_REQUEST_MS, 1),
        retries=values.number("numRetries", limits.SPARK_STAGE_RETRIES, 0),
        retry_ms=values.number("retryIntervalMs", limits.SPARK_RETRY_MS, 0),
        ca_file=values.get("caFile"),
        secret_file=values.get("httpSecretFile"),
        rejected_table=_rejected_table(values),
        rejected_rows_max=values.number("rejectedRowsMax", limits.SPARK_REJECTED_ROWS_MAX, 0),
    )


def _stage_bytes(values: Values) -> int:
    """A larger block than nsqd takes would fail in each task, row by row."""
    found = values.number("stageBytes", limits.SPARK_STAGE_BYTES, 1)
    if found > limits.STAGE_BYTES_MAX:
        rule = f"it is at most {limits.STAGE_BYTES_MAX} (32 MiB): nsqd takes no larger block"
        raise ConfigError("option stageBytes", str(found), rule)
    return found


def _rejected_table(values: Values) -> str | None:
    path = values.get("rejectedTable")
    if path is None:
        values.refuse("rejectedRowsMax", "it is of the option rejectedTable")
    elif not path:
        raise ConfigError("option rejectedTable", path, "the path or URL of a Delta table")
    return path


def _version(values: Values) -> int | None:
    if values.get("txnVersion") is None:
        return None
    return values.number("txnVersion", 0, 0)


_SPARK_LOWER = {name.lower() for name in _SPARK_NAMES}
