"""What of a run's settings leaves the driver."""

from __future__ import annotations

from penstock.pipelines.archive import SETTINGS
from penstock.pipelines.reporter import Screen
from penstock.pipelines.settings import COMMON, defaults


def screen(**changed: object) -> Screen:
    return Screen((*COMMON, *SETTINGS), defaults(SETTINGS, **changed))


def test_what_somebody_has_set_is_shown() -> None:
    found = screen(table="/lake/orders", topics=("orders", "bills"), once=True, trigger=2 * 10**9)
    assert found.options() == {
        "table": "/lake/orders",
        "topics": ["orders", "bills"],
        "once": True,
        "trigger": "2s",
    }


def test_no_value_of_storage_and_spark_is_shown() -> None:
    found = screen(
        table="s3://lake/orders",
        storage_option=("AWS_SECRET_ACCESS_KEY=abc/DEF=ghi", "AWS_REGION=eu-west-1"),
        conf=("spark.hadoop.fs.s3a.secret.key=hunter22", "spark.ui.enabled=true"),
    )
    assert found.options() == {
        "table": "s3://lake/orders",
        "storage-option": ["AWS_SECRET_ACCESS_KEY=***", "AWS_REGION=***"],
        "conf": ["spark.hadoop.fs.s3a.secret.key=***", "spark.ui.enabled=***"],
    }


def test_nor_is_it_in_another_text() -> None:
    found = screen(table="s3://lake/x", storage_option=("KEY=abc/DEF=ghi",), conf=("a=true",))
    assert found.text("403 for abc/DEF=ghi, which is true") == "403 for ***, which is true"


def test_urls_lose_their_user_and_their_query() -> None:
    found = screen(table="abfs://me:pw@lake/x?sig=s3cr3t&b=1", url="http://u:p@host:4151")
    assert found.options() == {"table": "abfs://***@lake/x?***", "url": "http://***@host:4151"}
    assert found.text("at 'https://h/p?token=1': no") == "at 'https://h/p?***': no"
    assert found.text("a@b.c and /x?y=1") == "a@b.c and /x?y=1"


def test_long_lists_and_texts_are_cut() -> None:
    found = screen(table="/" + "x" * 9000, topics=tuple(f"t{n}" for n in range(30)))
    options = found.options()
    assert isinstance(options["table"], str)
    assert len(options["table"]) == 500
    assert options["topics"] == [*(f"t{n}" for n in range(20)), "… and 10 more"]


def test_what_is_no_text_is_made_one() -> None:
    assert screen(table="t").text("/lake/\udcff") == "/lake/?"
