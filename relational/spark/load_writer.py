"""The second stage of a bulk load, in tasks: writes the rows of one partition as sorted, durable files.

Rows are sorted in the messages that contain them. If they exceed the memory of a task, sorted runs are spilled to the
local disk and merged, by the same iterators as in a compaction. The existing rows of the table are read from the files
named by the driver, never through the meta store.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from hummock.base.key import user_key
from hummock.compaction.input_iterator import run_iterators
from hummock.compaction.read_ahead import ReadAhead
from hummock.epoch import MAX_EPOCH
from hummock.iterator.base import HummockIterator
from hummock.iterator.merge import MergeIterator
from hummock.loaded_files import PLACEHOLDER
from hummock.object_store.base import ObjectStore, name_minter
from hummock.object_store.local import LocalObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.thread_group import ThreadGroup
from hummock.shared_buffer.ingest_writer import write_load
from hummock.spark.worker import deadline, local_directory, task_memory, task_store
from hummock.sstable.info import SstableInfo
from relational.spark.load_spec import LoadPart, LoadSpec
from relational.spark.row_sorter import RowSorter
from relational.spark.run_merge import BesideStored, UnderOneEpoch

ANSWER = "answer binary"
SPILL = StorageOptions(codec="lz4", filter_policy="none", sstable_bytes=256 << 20)
MERGE_BYTES = 64 << 20          # of read-ahead per merge


class _Refused(Exception):
    """Aborts the load; not retryable."""


def write_rows(spec: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row of ANSWER for the rows of one partition."""
    writer: PartitionWriter | None = None
    with ExitStack() as opened:
        for batch in batches:
            if writer is None:
                partition = batch.column(0)[0].as_py()
                writer = opened.enter_context(PartitionWriter(LoadSpec.from_bytes(spec), partition).open())
            writer.add(batch)
        if writer is not None:
            yield pa.record_batch({"answer": pa.array([writer.finish().to_bytes()], pa.binary())})


class PartitionWriter:
    """One attempt at one partition."""

    def __init__(self, spec: LoadSpec, partition: int):
        self._spec, self._partition = spec, partition
        self._sorter = RowSorter()
        self._memory_bytes = task_memory(spec.memory_bytes)
        self._runs: list[tuple[SstableInfo, ...]] = []
        self._store, self._is_over = task_store(spec.url), deadline(spec.limit_ms)
        self._spill_store: LocalObjectStore | None = None
        self._bytes_in = 0
        self._began, self._seconds = time.perf_counter(), {"receive": 0.0, "sort": 0.0, "write": 0.0}

    @contextmanager
    def open(self) -> Iterator[PartitionWriter]:
        """Opens the writer; local files are removed when the block ends."""
        with tempfile.TemporaryDirectory(prefix="hummock-load-", dir=local_directory()) as directory:
            self._directory = directory
            yield self

    def add(self, batch: pa.RecordBatch) -> None:
        before = self._sorter.nbytes
        self._sorter.add(batch.column(1))
        self._bytes_in += self._sorter.nbytes - before
        if self._sorter.nbytes >= self._memory_bytes:
            self._spill()

    def finish(self) -> LoadPart:
        self._clock("receive")
        try:
            return self._written()
        except _Refused as refusal:
            return LoadPart(self._partition, error=str(refusal))

    def _written(self) -> LoadPart:
        sorter, spec = self._sorter, self._spec
        if sorter.refusals:
            raise _Refused(sorter.refusals[0])
        self._check_received()
        if self._runs and sorter.rows:
            self._spill()
        with ExitStack() as opened:
            rows, retention = self._merged(opened)
            beside = None
            if spec.stored is not None:
                rows = beside = BesideStored(rows, self._stored_rows(opened), spec.on_duplicate == "first")
            self._clock("sort")
            if sorter.duplicates and spec.on_duplicate == "error":
                return LoadPart(self._partition, (), sorter.senders, sorter.counted, 0, sorter.duplicates,
                                tuple(sorter.duplicate_keys), len(self._runs), self._seconds)
            infos = self._write(rows)
            self._clock("write")
        duplicates = sorter.duplicates + (retention.dropped_rows if retention is not None else 0)
        met = 0 if beside is None else beside.met
        dropped = duplicates + (met if spec.on_duplicate == "first" else 0)
        written = sum(info.rows for info in infos)
        if written + dropped != sorter.counted:
            raise _Refused(f"partition {self._partition} was sent {sorter.counted} rows, of which {written} are in "
                           f"files and {dropped} gave way to others")
        keys = (*sorter.duplicate_keys, *(beside.met_keys if beside is not None else ()))
        return LoadPart(self._partition, infos, sorter.senders, sorter.counted, dropped, duplicates + met, keys,
                        len(self._runs), self._seconds)

    def _check_received(self) -> None:
        sorter = self._sorter
        if (sorter.counted, sorter.content) != (sorter.reported_rows, sorter.reported_content % (1 << 64)):
            raise _Refused(f"partition {self._partition} received {sorter.counted} rows where {sorter.reported_rows} "
                           "were sent, or others than those: the frame is not the same each time it is read")

    def _merged(self, opened: ExitStack) -> tuple[HummockIterator, RetentionIterator | None]:
        """The rows by key, each key once, and the iterator that drops superseded rows across spilled runs."""
        if not self._runs:
            return self._sorter.sort(), None
        assert self._spill_store is not None
        newest = RetentionIterator(self._merge(self._spill_store, self._runs, opened), MAX_EPOCH)
        return UnderOneEpoch(newest, PLACEHOLDER), newest

    def _stored_rows(self, opened: ExitStack) -> HummockIterator:
        """The live rows of the table in the partition's range."""
        assert self._spec.stored is not None
        merged = self._merge(self._store, self._spec.stored.runs, opened)
        return RetentionIterator(merged, self._spec.stored.epoch, True, (), dict(self._spec.tables))

    def _merge(self, store: ObjectStore, runs: Iterable[tuple[SstableInfo, ...]], opened: ExitStack) -> HummockIterator:
        """The entries of `runs` in the partition's range; its reader threads end with the block."""
        start, end = self._key_range()
        ahead, threads = ReadAhead(store, list(map(list, runs)), start, end, MERGE_BYTES), ThreadGroup("load")
        opened.callback(ahead.close)
        opened.callback(threads.join)
        opened.callback(ahead.stop)
        for _ in range(ahead.readers):
            threads.start(ahead.serve)
        return MergeIterator(run_iterators(ahead))

    def _key_range(self) -> tuple[bytes, bytes | None]:
        spec, table_id = self._spec, self._spec.table.id
        start = user_key(table_id, spec.first_vnode(self._partition), b"")
        if self._partition + 1 == spec.partitions:
            return start, user_key(table_id + 1, 0, b"")
        return start, user_key(table_id, spec.first_vnode(self._partition + 1), b"")

    def _write(self, rows: HummockIterator) -> tuple[SstableInfo, ...]:
        spec = self._spec
        borders = [border for table_id, rules in spec.tables.items() for border in rules.borders(table_id)]

        def check() -> None:
            if self._is_over():
                raise TimeoutError(f"partition {self._partition} took more than {spec.limit_ms} ms")

        return write_load(rows, self._bytes_in, self._store, spec.storage, name_minter(os.urandom, spec.name_prefixes),
                          tables=spec.tables, borders=borders, before_each=check)

    def _spill(self) -> None:
        """Spills the rows added so far to the local disk as a sorted run."""
        self._clock("receive")
        if self._spill_store is None:
            self._spill_store = LocalObjectStore(self._directory)
        rows = self._sorter.sort(self._spec.needs_ranks)
        mint = name_minter(os.urandom, ("",))
        self._runs.append(write_load(rows, self._sorter.nbytes, self._spill_store, SPILL, mint))
        self._sorter.clear()
        self._clock("sort")

    def _clock(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase] += now - self._began
        self._began = now
