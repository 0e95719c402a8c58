"""Where Spark looks for the data source "penstock" by itself: modules named `pyspark_*`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
