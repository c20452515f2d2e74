"""The engine that keeps the views of a command: this process, or tasks on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream.spark.job import SparkSession


@contextmanager
def engine_on(master: str, name: str) -> Iterator[SparkSession | None]:
    """A Spark session on `master` for `connect(engine=…)`, stopped at the end; None without a master. "submitted": as
    spark-submit configures it. SparkMissing, InvalidOption."""
    if not master:
        yield None
        return
    from hummock.spark.session import spark_session

    spark = spark_session(master, name=name, carries_rows=False)
    try:
        yield spark
    finally:
        spark.stop()
