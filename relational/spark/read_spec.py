"""ReadSpec: the input of one task of a read, and the task: rows of some key ranges of a table, as record batches.

A small versioned record of JSON values: the files that overlap the ranges, the rules of their tables, the table and its
columns. Tasks do not access a meta store.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from hummock.base.json_fields import MALFORMED, check_format, natural
from hummock.base.key import KeyRange
from hummock.epoch import Epoch
from hummock.errors import DiskCacheInUse, InvalidTask
from hummock.object_store.base import ObjectStore
from hummock.options import MIB, StorageOptions
from hummock.spark.worker import begin_task, disk_cache, task_store
from hummock.sstable.info import SstableInfo
from hummock.sstable.reader import SstableReader
from hummock.sstable.store import SstableStore
from hummock.store.snapshot_store import SnapshotStore
from hummock.version import HummockVersion
from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.arrow_export import OP_COLUMN
from relational.chunk.text import op_texts
from relational.expr.eval import Evaluator
from relational.expr.expression import Expression, input_columns, remap
from relational.expr.kernels.text_format import to_text
from relational.plan.logical import Filter, Scan
from relational.plan.serialize import plan_from_text, plan_to_text
from relational.table.storage_table import StorageTable
from relational.types import DataType, Schema

FORMAT = 1
OPTIONS = StorageOptions(block_cache_bytes=64 * MIB, meta_cache_bytes=64 * MIB, scan_batch_rows=16_384)
KEPT_READERS = 1_024
MOST_CACHES = 64
"""On the disk of one executor. A worker that is started again finds one with the blocks of a former worker."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """`columns` of the rows of `table` at `epoch` in `ranges`; or of the changes since `since` if that is not None:
    since 0, before which the table was empty, every row is an insert. A scan of rows, not of changes, returns those for
    which `where`, over the table's columns, is true; None: all.

    `version` is the part of a version of the store at `url` that overlaps the ranges.
    """

    url: str
    version: HummockVersion
    table: TableCatalog
    columns: tuple[int, ...]
    ranges: tuple[KeyRange, ...]
    epoch: Epoch
    since: Epoch | None = None
    where: Expression | None = None

    def to_bytes(self) -> bytes:
        record = {
            "format": FORMAT, "url": self.url, "version": self.version.to_json(), "table": self.table.to_json(),
            "columns": list(self.columns), "epoch": self.epoch, "since": self.since,
            "where": None if self.where is None else plan_to_text(Filter(Scan(self.table), self.where)),
            "ranges": [[part.start.hex(), None if part.end is None else part.end.hex()] for part in self.ranges],
        }  # fmt: skip
        return zlib.compress(json.dumps(record).encode(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadSpec:
        """The inverse of `to_bytes`. Raises `InvalidTask`."""
        try:
            record: dict[str, Any] = json.loads(zlib.decompress(data))
            check_format("the read of a table", record["format"], FORMAT)
            ranges = tuple(KeyRange(bytes.fromhex(start), None if end is None else bytes.fromhex(end))
                           for start, end in record["ranges"])
            since, table = record["since"], TableCatalog.from_json(record["table"])
            return cls(
                str(record["url"]), HummockVersion.from_json(record["version"]), table,
                tuple(map(natural, record["columns"])), ranges, Epoch(natural(record["epoch"])),
                None if since is None else Epoch(natural(since)), _where_of(record["where"], table))
        except (*MALFORMED, zlib.error) as error:
            raise InvalidTask("read of a table", str(error)) from error


def read_task(version: str, specs: Sequence[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of the specs whose indices arrive. Raises the errors of reads, and ExecutorUnfit."""
    begin_task(version)
    for batch in batches:
        for index in batch.column(0).to_pylist():
            yield from read_batches(ReadSpec.from_bytes(specs[index]))


def read_spec_task(version: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of the specs that arrive, as rows (index, spec). Raises as `read_task` does."""
    begin_task(version)
    for batch in batches:
        for spec in batch.column(1).to_pylist():
            yield from read_batches(ReadSpec.from_bytes(spec))


def read_batches(spec: ReadSpec) -> Iterator[pa.RecordBatch]:
    """The rows, or the changes, in the schema of `read_schema`."""
    schema = read_schema(spec.table, spec.columns, spec.since is not None)
    for chunk in read_chunks(spec, files_of(spec.url)):
        yield _batch(chunk, schema)


def read_chunks(spec: ReadSpec, files: SstableStore) -> Iterator[DataChunk]:
    """The rows, or the changes as StreamChunks, from `files`. EvaluationError for a row for which `where` has no value.
    """
    asked = frozenset[int]() if spec.where is None else input_columns(spec.where)
    columns = (*spec.columns, *sorted(asked - {*spec.columns}))
    indices = {column: index for index, column in enumerate(columns)}
    where = None if spec.where is None else Evaluator(remap(spec.where, indices))
    with closing(SnapshotStore(spec.version, files, OPTIONS)) as store:
        table = StorageTable(spec.table, store, columns)
        for part in spec.ranges:
            if spec.since:
                yield from table.changes(spec.since, spec.epoch, part)
                continue
            for rows in table.scan_partition(spec.epoch, part):
                if where is not None:
                    kept = rows.filter(where(rows, strict=True))
                    rows = kept.project(range(len(spec.columns))).compact()
                yield rows if spec.since is None else StreamChunk.inserts(rows)


def _where_of(text: str | None, table: TableCatalog) -> Expression | None:
    if text is None:
        return None
    plan = plan_from_text(text, lambda _: table)
    assert isinstance(plan, Filter)
    return plan.predicate


def read_schema(table: TableCatalog, columns: Sequence[int], has_ops: bool) -> pa.Schema:
    """The schema of the batches: the columns by name, JSONB and INTERVAL, which Spark has not, as text; for changes,
    preceded by the op of each row, `_op`.
    """
    schema = Schema(tuple(table.schema.fields[column] for column in columns)).arrow
    fields = [pa.field(field.name, _plain(field.type)) for field in schema]
    return pa.schema([pa.field(OP_COLUMN, pa.utf8(), nullable=False), *fields] if has_ops else fields)


def _batch(rows: DataChunk, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_plain_values(array) for array in rows.arrays]
    if isinstance(rows, StreamChunk):
        arrays = [op_texts(rows.ops), *arrays]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain_values(array: pa.Array) -> pa.Array:
    if array.type == DataType.INTERVAL.arrow:
        return to_text(array, DataType.INTERVAL)
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind == DataType.INTERVAL.arrow:
        return pa.utf8()
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


class KeptFiles(SstableStore):
    """Caches the most recently used readers, and with them the cached contents of their files: consecutive tasks of one
    read in a worker mostly share files.
    """

    def __init__(self, objects: ObjectStore, options: StorageOptions) -> None:
        super().__init__(objects, options)
        self._kept: OrderedDict[SstableReader, None] = OrderedDict()    # in LRU order

    def reader(self, info: SstableInfo) -> SstableReader:
        found = super().reader(info)
        self._kept[found] = None
        self._kept.move_to_end(found)
        if len(self._kept) > KEPT_READERS:
            self._kept.popitem(last=False)
        return found


@cache
def files_of(url: str) -> KeptFiles:
    """The files at `url`, cached for the lifetime of the worker process, also on its local disk if they are remote."""
    directory, size = disk_cache(url)
    for number in range(MOST_CACHES if size else 0):
        options = replace(OPTIONS, disk_cache_directory=f"{directory}/{number}", disk_cache_bytes=size)
        with suppress(DiskCacheInUse):  # by another worker of the executor
            return KeptFiles(task_store(url), options)
    return KeptFiles(task_store(url), OPTIONS)
