"""What delta-rs has to know of a table's store, given to a data source, but not as an option.

Some of it is secret, and Spark keeps options in plans, which it may show on its web pages and in
logs. So it is part of the class that is registered, of which Spark has bytes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pyspark.sql.datasource import DataSource

Source = TypeVar("Source", bound=DataSource)


def with_store(source: type[Source], store: Mapping[str, str]) -> type[Source]:
    """A class of the same name whose attribute `store` has these options."""
    return type(source.__name__, (source,), {"store": dict(store)}) if store else source
