"""Bulk load of a session: commits the rows of a DataFrame to a table at one epoch, all or none, beside the stream.

During the load the table accepts no statements, and no job that would follow its changes can be created; everything
else continues. The files are added in the commit of a checkpoint barrier. A table that is created or overwritten
appears with its rows in that one transaction. After an error nothing is left except files that vacuum deletes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hummock.base.json_fields import NAME_RULE, is_name
from hummock.base.key import KeyRange
from hummock.errors import SparkJobCancelled
from hummock.loaded_files import LoadAnswer, LoadedFiles
from hummock.spark.worker import shared_url
from hummock.version import HummockVersion
from relational.catalog.names import ObjectName
from relational.catalog.objects import RowFormat, TableCatalog, TableKind
from relational.spark.bulk_load import RowsRefused, WrittenRows, partitions_of, write_frame
from relational.spark.frame_columns import FrameColumns, frame_types, matched_columns
from relational.spark.load_spec import DUPLICATE_RULES, LoadSpec, Stored
from relational.table.row_serde import RowSerde
from relational.table.store_rules import rules_of
from stream.errors import BulkLoadRefused, DuplicateRows
from stream.options import NAME_PREFIXES, TASK_MEMORY_BYTES
from stream.session.statements import table_draft

if TYPE_CHECKING:
    from relational.spark.bulk_load import DataFrame
    from stream.playground import Playground

MODES = ("append", "create", "overwrite")
ATTEMPT_MS = 4 * 3_600_000       # maximum duration of a task
WAIT_BYTES, WAITS = 4 << 20, 60  # a load may wait one second for level 0 per WAIT_BYTES; at most WAITS times


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a bulk load. `level` 0: its files are above all others, and `debt_bytes` remain to be compacted;
    else they are at the bottom level, each row written once. `seconds`: of the driver, by phase; `task_seconds`: the
    sums over all tasks.
    """

    table: str
    mode: str
    load_id: str
    epoch: int
    rows: int
    files: int
    data_bytes: int
    level: int
    rows_dropped: int = 0
    spills: int = 0
    partitions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    task_seconds: dict[str, float] = field(default_factory=dict)
    was_repeated: bool = False

    @property
    def debt_bytes(self) -> int:
        """Bytes that compaction still has to write because of this load."""
        return 0 if self.level else self.data_bytes

    def __repr__(self) -> str:
        placement = (f"level {self.level}, nothing to compact" if self.level
                     else f"level 0, {self.debt_bytes:,} bytes to be merged down")
        lines = [f"bulk load {self.load_id} into {self.table!r} ({self.mode}), committed at epoch {self.epoch}",
                 f"  {self.rows:,} rows in {self.files:,} files of {self.data_bytes:,} bytes: {placement}"]
        if self.rows_dropped:
            lines.append(f"  {self.rows_dropped:,} rows gave way to others of their key")
        if self.was_repeated:
            lines.append("  it had been committed before this call, which did nothing")
        else:
            spent = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.seconds.items())
            tasks = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.task_seconds.items())
            spilled = f", {self.spills} sorted runs on local disks" * bool(self.spills)
            lines += [f"  {spent}", f"  {self.partitions} partitions: {tasks}{spilled}"]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The arguments of a load. `primary_key` is that of a table to be created."""

    frame: DataFrame
    name: ObjectName
    on_duplicate: str = "error"
    mode: str = "append"
    primary_key: str | Sequence[str] | None = None
    load_id: str = ""
    partitions: int | None = None
    memory_bytes: int = TASK_MEMORY_BYTES
    is_cancelled: Callable[[], bool] | None = None
    on_progress: Callable[[int, int], None] | None = None

    def check(self) -> None:
        """BulkLoadRefused for invalid arguments."""
        for name, value, known in (("mode", self.mode, MODES), ("on_duplicate", self.on_duplicate, DUPLICATE_RULES)):
            if value not in known:
                words = f"{', '.join(known[:-1])} or {known[-1]}"
                raise BulkLoadRefused(self.name.name, f"{name} is {words}, not {value!r}")
        if self.load_id and not is_name(self.load_id):
            raise BulkLoadRefused(self.name.name, f"load_id {self.load_id[:80]!r} is not {NAME_RULE}")
        if (self.primary_key is not None) != (self.mode == "create"):
            raise BulkLoadRefused(self.name.name, "a primary key is given where the table is created, and only there")


class BulkLoader:
    """One load, by one thread."""

    def __init__(self, playground: Playground, request: LoadRequest) -> None:
        self._playground, self._ddl = playground, playground.meta.ddl
        self._catalog, self._storage = playground.catalog, playground.storage
        self._request = replace(request, load_id=request.load_id or os.urandom(8).hex())
        self._seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def run(self) -> LoadReport:
        """Carry out the load. BulkLoadRefused, DuplicateRows, Fenced, SparkJobFailed, LoadRefused, SnapshotExpired:
        then the table is unchanged."""
        request = self._request
        request.check()
        shared_url(self._playground.url)
        answer = self._playground.manager.load_answer(request.load_id)
        if answer is not None:
            return self._report(answer, WrittenRows(), was_repeated=True)
        self._playground.check_serves()
        with ExitStack() as opened:
            table, replaces = self._target(opened)
            columns = self._columns(table)
            prefixes = opened.enter_context(self._storage.upload_prefixes(NAME_PREFIXES))
            stored = opened.enter_context(self._stored(table)) if replaces is None else None
            spec = self._spec(table, columns, prefixes, stored)
            self._clock("prepare")
            try:
                written = write_frame(request.frame, columns, spec, is_cancelled=request.is_cancelled,
                                      on_progress=request.on_progress)
            except RowsRefused as error:
                raise BulkLoadRefused(table.name, str(error)) from error
            self._clock("job")
            self._check_duplicates(table, written)
            if stored is not None:
                self._wait_for_level0(sum(info.data_bytes for info in written.sstables))
            self._commit(table, replaces, LoadedFiles(request.load_id, written.sstables))
        self._clock("commit")
        answer = self._playground.manager.load_answer(request.load_id)
        assert answer is not None
        return self._report(answer, written, partitions=spec.partitions)

    def _target(self, opened: ExitStack) -> tuple[TableCatalog, TableCatalog | None]:
        """The table to write, and the one that it replaces; both are checked, and reserved for this load."""
        request = self._request
        if request.mode == "create":
            return self._ddl.identified(self._draft()), None
        found = self._catalog.resolve(request.name)
        if found.kind is not TableKind.TABLE:
            raise BulkLoadRefused(found.name, f"it is {found.kind.one}: only tables are loaded")
        if found.row_id_index is not None:
            raise BulkLoadRefused(found.name, "it has no primary key of its own: declare one, so that a load that is "
                                              "repeated meets the rows of the first")
        if found.watermarks:
            raise BulkLoadRefused(found.name, "it has a watermark, by which its rows are judged: insert them")
        if found.row_format is not RowFormat.ROW:
            raise BulkLoadRefused(found.name, f"its row format is {found.row_format}: rows are loaded whole")
        self._columns(found)
        table = self._ddl.begin_load(found.id)
        opened.callback(self._ddl.end_load, found.id)
        return (self._ddl.replaced(table), table) if request.mode == "overwrite" else (table, None)

    def _draft(self) -> TableCatalog:
        request = self._request
        try:
            types = frame_types(request.frame)
        except ValueError as error:
            raise BulkLoadRefused(request.name.name, str(error)) from error
        draft = table_draft(request.name.name, types, request.primary_key, False, "error", {}, {})
        schema = self._catalog.resolve_schema(request.name.schema, request.name.database)
        return replace(draft, schema_id=schema.id)

    def _columns(self, table: TableCatalog) -> FrameColumns:
        try:
            return matched_columns(self._request.frame, table)
        except ValueError as error:
            raise BulkLoadRefused(table.name, str(error)) from error

    @contextmanager
    def _stored(self, table: TableCatalog) -> Iterator[Stored | None]:
        """The table's rows as files, which are kept until the block ends; None if there are none."""
        with self._storage.snapshot() as epoch, self._storage.pinned_version() as pinned:
            runs = tuple(runs_of(pinned.version, table.id))
            yield Stored(epoch, runs) if runs else None

    def _spec(
        self, table: TableCatalog, columns: FrameColumns, prefixes: tuple[str, ...], stored: Stored | None
    ) -> LoadSpec:
        request, shape = self._request, self._playground.options.compaction
        rules = self._storage.version.tables.get(table.id, rules_of(table))
        return LoadSpec(
            request.load_id, self._playground.url, prefixes, table, columns.column_indices,
            request.partitions or partitions_of(request.frame, table.vnode_count), request.on_duplicate,
            shape.sstable_bytes, shape.block_bytes, shape.codecs[min(shape.last_level, len(shape.codecs) - 1)],
            shape.filter_policy, shape.filter_bits_per_key, request.memory_bytes, ATTEMPT_MS,
            {} if rules.is_empty else {table.id: rules}, stored)

    def _check_duplicates(self, table: TableCatalog, written: WrittenRows) -> None:
        if written.duplicates and self._request.on_duplicate == "error":
            serde = RowSerde(table)
            raise DuplicateRows(table.name, written.duplicates, [serde.show_key(key) for key in written.duplicate_keys])

    def _wait_for_level0(self, size_bytes: int) -> None:
        """Wait while compaction is behind, at most in proportion to the load's size; a load is never stopped."""
        is_cancelled = self._request.is_cancelled
        for _ in range(min(WAITS, -(-size_bytes // WAIT_BYTES))):
            if is_cancelled is not None and is_cancelled():
                raise SparkJobCancelled(f"bulk load of {self._request.name.name}")
            self._storage.wait_for_level0(min(size_bytes, WAIT_BYTES))

    def _commit(self, table: TableCatalog, replaces: TableCatalog | None, load: LoadedFiles) -> None:
        if self._request.mode == "append":
            answer = self._playground.manager.load_answer
            self._ddl.commit_load(load, lambda: answer(load.load_id) is not None)
        else:
            self._ddl.create_loaded(table, load, replaces)

    def _report(self, answer: LoadAnswer, written: WrittenRows, *, partitions: int = 0,
                was_repeated: bool = False) -> LoadReport:
        request = self._request
        return LoadReport(request.name.name, request.mode, answer.load_id, answer.epoch, answer.rows, answer.files,
                          answer.data_bytes, answer.level, written.rows_dropped, written.spills, partitions,
                          self._seconds, written.seconds, was_repeated)

    def _clock(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase], self._began = now - self._began, now


def runs_of(version: HummockVersion, table_id: int) -> Iterator[tuple]:
    """The files that may contain rows of the table, by sorted run, newest first."""
    for files in version.overlapping(KeyRange.table(table_id)):
        if mine := tuple(info for info in files if table_id in info.table_ids):
            yield mine
