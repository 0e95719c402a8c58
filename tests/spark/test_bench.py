"""The figures of the data pipeline, small: that they can be taken, not what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import spark as bench_spark
from bench.spark_figures import FIGURES, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_the_figures_can_be_taken(spark: SparkSession, tmp_path: Path) -> None:
    sizes = Sizes(4_000, 2_000, 2, 10, 400, repeats=0)
    with bench_spark.bench_on(spark, sizes, tmp_path) as bench:
        for name, figures in FIGURES.items():
            if name == "audit":
                continue  # its own tests take long enough
            taken = list(figures(bench))
            assert taken, name
            assert all(figure.value > 0 for figure in taken), taken
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_spark.bench_spark_main(["speed"]) == 2
    assert "'speed' is none of raw, batch" in capsys.readouterr().err
