"""Payload of a frame: Spark's executors write its rows as objects of the store, and the driver gets their names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.base.process import installed_version
from hummock.errors import ExecutorUnfit, SparkJobFailed
from hummock.object_store.base import name_minter
from hummock.spark.jobs import run_job
from hummock.spark.worker import begin_task, shared_url, task_store
from relational.inbox.payload import PayloadObject, check_count, write_payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBJECTS = "name string, size long, checksum long, rows long, row_bytes long, error string"
SCHEMA = pa.schema([("name", pa.string()), ("size", pa.int64()), ("checksum", pa.int64()), ("rows", pa.int64()),
                    ("row_bytes", pa.int64()), ("error", pa.string())])


def write_frame_payload(frame: DataFrame, url: str, prefixes: Sequence[str], name: str) -> tuple[PayloadObject, ...]:
    """Objects of the store at `url` with the rows of `frame`, in the order of its partitions; their names begin with
    `prefixes`, which are registered. Spark's UI shows the job as `name`.

    Raises `InvalidOption` for a store that executors do not see, and for too many partitions; `SparkJobFailed`.
    """
    write = partial(write_partition, installed_version(), shared_url(url), tuple(prefixes))
    rows = run_job(frame.sparkSession, frame.mapInArrow(write, OBJECTS).collect, name=name)
    for row in rows:
        if row.error is not None:
            raise SparkJobFailed(name, row.error)
    payload = tuple(PayloadObject(row.name, row.size, row.checksum, row.rows, row.row_bytes) for row in rows)
    check_count(payload)
    return payload


def write_partition(version: str, url: str, prefixes: Sequence[str],
                    batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark task: rows of OBJECTS for the objects with the rows of `batches`."""
    try:
        payload = write_rows(version, url, prefixes, batches)
    except ExecutorUnfit as error:
        yield pa.RecordBatch.from_pylist([{"error": str(error)}], SCHEMA)
        return
    fields = SCHEMA.names[:-1]
    yield pa.RecordBatch.from_pylist([{name: getattr(each, name) for name in fields} for each in payload], SCHEMA)


def write_rows(version: str, url: str, prefixes: Sequence[str],
               batches: Iterable[pa.RecordBatch]) -> tuple[PayloadObject, ...]:
    """The objects with the rows of `batches`, written by a Spark task. Raises `ExecutorUnfit`."""
    begin_task(version)
    return write_payload(batches, task_store(url), name_minter(os.urandom, prefixes))
