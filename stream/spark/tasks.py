"""The tasks of a bulk backfill: the input is a spec, the output are files and shuffle blocks, the answer is a report.

The report is all that is known of a task, whichever attempt it came from: files and blocks that no report names are
ignored. The last fragment writes no shuffle blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hummock.object_store.base import ObjectStore, name_minter
from hummock.spark.worker import local_directory, task_store
from hummock.sstable.info import SstableInfo
from hummock.store.bulk_store import BulkStore
from relational.chunk import DataChunk, StreamChunk
from relational.expr import ErrorCounts
from relational.spark.read_spec import ReadSpec, files_of, read_chunks
from stream.errors import InconsistentStream
from stream.options import StreamOptions
from stream.spark.fragment_run import in_one_epoch, run_fragment
from stream.spark.shuffle_files import (
    EMPTY_PART,
    Partitioning,
    ShuffleFile,
    ShufflePart,
    ShuffleWriter,
    part_from_json,
    part_to_json,
    read_blocks,
    write_parts,
)
from stream.spark.spec import BackfillSpec, TaskSpec

CHUNK_ROWS = 16_384
FLUSH_GROUPS = 1 << 40
"""Never flush before the barrier: the number of groups of a task is bounded by its input rows. So an aggregation emits
at that barrier only, and the output of a fragment is its net change."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of a task: rows received and emitted, its files, ascending and disjoint, its shuffle blocks, and the
    number of its rows without a value, by reason."""

    rows_in: int
    rows_out: int
    sstables: tuple[SstableInfo, ...]
    sent: ShufflePart = EMPTY_PART
    errors: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        record = {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "sstables": [info.to_json() for info in self.sstables],
            "sent": part_to_json(self.sent),
            "errors": dict(self.errors),
        }
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> TaskReport:
        record = json.loads(text)
        files = tuple(map(SstableInfo.from_json, record["sstables"]))
        return cls(record["rows_in"], record["rows_out"], files, part_from_json(record["sent"]), record["errors"])


def checked(reports: list[TaskReport], before: Sequence[TaskReport]) -> list[TaskReport]:
    """The reports of a fragment; `before`: those of the fragment that sent its rows, if any. InconsistentStream unless
    as many rows were received as were sent."""
    sent, came = sum(report.rows_out for report in before), sum(report.rows_in for report in reports)
    if before and sent != came:
        raise InconsistentStream("Exchange", f"{sent} rows were sent, {came} came")
    return reports


def run_task(serialized: bytes) -> bytes:
    """Runs the task of a serialized spec in a Spark executor; its serialized report."""
    spec = TaskSpec.from_bytes(serialized)
    url = spec.backfill.url

    def scan(read: bytes) -> Iterable[DataChunk]:
        return read_chunks(ReadSpec.from_bytes(read), files_of(url))

    return task_report(spec, scan, task_store(url)).to_bytes()


def task_report(spec: TaskSpec, scan: Callable[[bytes], Iterable[DataChunk]], objects: ObjectStore) -> TaskReport:
    """Runs the task; `scan` reads the upstream, `objects` holds the shuffle blocks and the files written."""
    backfill, number = spec.backfill, spec.fragment
    fragment = backfill.fragments[number]

    mint = name_minter(os.urandom, backfill.prefixes)

    def arriving() -> Iterable[StreamChunk]:
        if spec.scan:
            return map(StreamChunk.inserts, scan(spec.scan))
        return read_blocks(spec.blocks, fragment.leaf.schema, objects)

    rows, errors = _Counted(arriving()), ErrorCounts()
    is_last = number == len(backfill.fragments) - 1
    storage = replace(backfill.storage, shared_buffer_bytes=backfill.memory_bytes)
    directory = local_directory()
    with ShuffleFile(objects, mint, directory) as file, BulkStore(storage, directory) as store:
        writer = None if is_last else _shuffle_writer(backfill, number + 1, file)
        options = StreamOptions(chunk_rows=CHUNK_ROWS, aggregation_flush_groups=FLUSH_GROUPS)
        inputs = (in_one_epoch(rows, backfill.epoch),)
        for message in run_fragment(fragment, None, store, inputs, options, errors, is_fresh=True):
            if writer is not None and isinstance(message, StreamChunk):
                writer.add(checked_inserts(message))
        (sent,) = (EMPTY_PART,) if writer is None else write_parts(file, [writer])
        written = store.write_out(objects, mint, fragment.table_ids)
        if sum(info.rows for info in written) != store.puts:
            raise InconsistentStream(fragment.root.identity, f"of {store.puts} rows of a new state some have one key")
    return TaskReport(rows.count, sent.rows, written, sent, errors.take())


class _Counted:
    """Counts the visible rows of the chunks that it yields."""

    def __init__(self, chunks: Iterable[StreamChunk]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[StreamChunk]:
        for chunk in self._chunks:
            self.count += chunk.visible_rows
            yield chunk


def checked_inserts(chunk: StreamChunk) -> StreamChunk:
    """The chunk; InconsistentStream for a change that is no insert: all state is empty when the task begins, so the net
    change of its epoch consists of inserts."""
    dense = chunk.compact()
    if dense.ops.any():
        raise InconsistentStream("Exchange", "the net change of an epoch that begins with nothing has a retraction")
    return dense


def _shuffle_writer(backfill: BackfillSpec, number: int, file: ShuffleFile) -> ShuffleWriter:
    """Writes the input of fragment `number`."""
    after = backfill.fragments[number]
    receivers, vnode_count = backfill.tasks[number], backfill.view.vnode_count
    partitioning = Partitioning(receivers, after.key, vnode_count, after.rule, target=None)
    return ShuffleWriter(file, after.leaf.schema, partitioning)
