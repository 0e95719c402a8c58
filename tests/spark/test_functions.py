"""The SQL functions say what `ids/` says."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.ids import guid, unique
from penstock.spark.functions import register_functions

VECTORS = (  # of RocketMQ's documents, and of our own making
    "C0A8010A123418B4AAC200989680002A",
    "C0A8010A117018B4AAC200000000FFFF",
    "C0A8010A000118B4AAC285E55800FFFF",  # 26 days: negative for who reads it as signed
    "20010DB8000000000000000000000001123418B4AAC200989680002A",
    "0A3A54F7BF7D18B4AAC28A3FA2CF0000",
)
NO_GUIDS = ("", "18a26f9ac7a6900", "18a26f9ac7a69000f", "18a26f9ac7a6900g")
NO_UNIQUES = ("", "C0A8010A123418B4AAC200989680002", "G0A8010A123418B4AAC200989680002A")


@pytest.fixture(scope="module")
def functions(spark: SparkSession) -> SparkSession:
    register_functions(spark)
    return spark


def ask(spark: SparkSession, ids: list[str], expression: str) -> list[Any]:
    frame = spark.createDataFrame(
        [(number, id) for number, id in enumerate(ids)], "n int, id string"
    )
    frame.createOrReplaceTempView("ids")
    return [row[0] for row in spark.sql(f"SELECT {expression} FROM ids ORDER BY n").collect()]


def test_message_ids(functions: SparkSession) -> None:
    seeded = random.Random(7)
    numbers = [0x18A26F9AC7A69000, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    numbers += [seeded.randrange(1 << 64) for _ in range(200)]
    ids = [f"{number:016x}" for number in numbers] + ["18A26F9AC7A69FFF"]
    parts = [guid.parse(int(id, 16)) for id in ids]
    assert ask(functions, ids, "guid_node(id)") == [part.node for part in parts]
    assert ask(functions, ids, "guid_sequence(id)") == [part.sequence for part in parts]
    micros = ask(functions, ids, "unix_micros(guid_time(id))")
    assert micros == [part.time_ns // 1000 for part in parts]


def test_unique_ids(functions: SparkSession) -> None:
    parts = [unique.decode(id) for id in VECTORS]
    ids = [*VECTORS, VECTORS[0].lower()]
    parts.append(parts[0])
    assert ask(functions, ids, "unique_ip(id)") == [part.ip_text for part in parts]
    assert ask(functions, ids, "unique_pid(id)") == [part.pid for part in parts]


@pytest.mark.parametrize(
    "as_of", ["2024-02-01 02:46:40.000", "2024-02-29 12:00:00.000", "2024-03-01 00:00:00.001"]
)
def test_the_time_of_a_unique_id(functions: SparkSession, as_of: str) -> None:
    now_ms = round(datetime.fromisoformat(as_of).replace(tzinfo=UTC).timestamp() * 1000)
    found = ask(functions, list(VECTORS), f"unix_millis(unique_time(id, TIMESTAMP'{as_of}'))")
    assert found == [unique.time_ms(unique.decode(id), now_ms, UTC) for id in VECTORS]


def test_invalid_ids_are_null(functions: SparkSession) -> None:
    for name in ("guid_time", "guid_node", "guid_sequence"):
        assert ask(functions, list(NO_GUIDS), f"{name}(id)") == [None] * len(NO_GUIDS)
    for call in ("unique_ip(id)", "unique_pid(id)", "unique_time(id, current_timestamp())"):
        assert ask(functions, list(NO_UNIQUES), call) == [None] * len(NO_UNIQUES)


def test_no_python_runs_for_a_row(functions: SparkSession) -> None:
    plan = functions.sql(
        "EXPLAIN SELECT guid_time(string(id)), unique_ip(string(id)) FROM range(9)"
    )
    assert "Python" not in plan.collect()[0][0]
