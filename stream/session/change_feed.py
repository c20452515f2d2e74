"""ChangeFeed: the changes of a table or materialized view, from a snapshot or an epoch on, as Arrow batches.

    with db.changes("totals") as feed:              # the rows that are there, then what changes
        for batch in feed:
            print(batch.to_pylist())                # [{"_op": "+", "_epoch": …, "k": 1, "n": 10}, …]

    async for batch in db.changes("totals"): ...
    feed = db.changes("totals", since=epoch).start(print)       # in a thread, until feed.close()

A feed reads the difference between the rows of two epochs. If several epochs were committed since its last look, their
changes come together, of each key what is left of them. So a slow reader gets larger steps, never a longer queue, and
from its own position on every epoch stays readable for it. Nothing is read for an epoch that did not change the table.
A cursor keeps the position under a name, see `change_cursor`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from hummock.epoch import NEVER, Epoch, monotonic_seconds, pure_epoch
from hummock.errors import HummockError, InvalidEpoch
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.chunk.arrow_export import OP_COLUMN
from relational.chunk.text import op_texts
from relational.errors import CatalogError, NotFound
from relational.expr.eval_context import from_numbers
from relational.table.storage_table import StorageTable
from stream.errors import SessionClosed, StreamError
from stream.meta.creations import check_created
from stream.meta.job_failures import job_error
from stream.session.change_cursor import ChangeCursor

if TYPE_CHECKING:
    from stream.serving import Host

EPOCH_COLUMN = "_epoch"
LOOK_SECONDS = 1.0
"""Between two looks whether the job of the table was set aside, which no commit need tell."""


class ChangeFeed(ClosedAtExit):
    """An iterator, and an asynchronous one, over record batches: `_op` (`+` an inserted row, `-` a deleted one, `U-`
    and `U+` the adjacent halves of an update), `_epoch` (uint64), then the columns that the table had when the feed was
    made. All batches of one `_epoch` lead from the rows at `epoch` to the rows at that one, each key once.

    One thread reads at a time; any may call `close`, which ends a waiting one. NotFound if the table is dropped,
    JobFailed if its job is set aside, CatalogError if it loses a column; SnapshotExpired if this process was suspended
    for so long that what it reads was given up."""

    def __init__(
        self,
        host: Host,
        table: TableCatalog,
        since: int | None,
        *,
        follow: bool,
        cursor: str | None = None,
        retention_ms: int | None = None,
    ) -> None:
        if not table.kind.has_rows:
            raise CatalogError(f"{table.name!r} is {table.kind.one}, which has no rows of its own", name=table.name)
        known = host.catalog.snapshot
        host.settle([table.id], known)
        check_created(known, [table.id])
        self._host, self._storage, self._table, self._follows = host, host.storage, table, follow
        self._columns = {column.column_id: column.name for column in table.columns if not column.is_hidden}
        self._rows = table.schema.project(at for at, column in enumerate(table.columns) if not column.is_hidden)
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What ended `start`."""
        self._pins = ExitStack()
        self.epoch = Epoch(NEVER)
        """All changes up to this epoch were given, and the next batch was asked for."""
        self._cursor = None
        if cursor is not None:
            self._cursor = ChangeCursor(host.manager, host.meta_store, cursor, table.id, retention_ms)
        try:
            self._batches = self._first_step(since)
        except BaseException:
            self._pins.close()
            raise
        self._commits = host.manager.subscribe(lambda version: self._notify())
        host.feeds.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"up to epoch {self.epoch}"
        return f"ChangeFeed({self._table.name!r}, {state})"

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        own = [pa.field(OP_COLUMN, pa.utf8(), nullable=False), pa.field(EPOCH_COLUMN, pa.uint64(), nullable=False)]
        return pa.schema([*own, *self._rows.arrow])

    def read(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch; None at the end, or if there is none after `timeout` seconds (0: none that is there now)."""
        deadline = None if timeout is None else monotonic_seconds() + timeout
        while True:
            self._check_open()
            batch = next(self._batches, None)
            if batch is not None:
                return batch
            self._pass(self._target)
            if not self._find_target(deadline):
                return None
            self._batches = self._step()

    def start(self, on_batch: Callable[[pa.RecordBatch], object]) -> Self:
        """Calls `on_batch` with each batch, from a thread of its own, until `close`; what it or the feed raises ends
        the thread and is in `error`."""

        def run() -> None:
            try:
                for batch in self:
                    on_batch(batch)
            except Exception as error:
                self.error = error

        self._thread = threading.Thread(target=run, name=f"changes-{self._table.name}", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends a waiting `read`, and notes in the cursor what was passed. Idempotent. The session does it at its end,
        too."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._cursor is not None and self.epoch == self._target != self._cursor.epoch:
            with suppress(HummockError, StreamError):  # then it comes again, by its epoch
                self._cursor.begin(self.epoch, self.epoch)
        self._commits.close()
        self._pins.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while not self._is_closed:
            try:
                batch = self.read()
            except SessionClosed:
                return
            if batch is None:
                return
            yield batch

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while not self._is_closed:
            try:
                batch = await asyncio.to_thread(self.read)
            except SessionClosed:
                return
            if batch is None:
                return
            yield batch

    # -- epochs ----------------------------------------------------------------------------------------

    def _first_step(self, since: int | None) -> Iterator[pa.RecordBatch]:
        """Goes on at the cursor, else after `since`, else with the rows that are there."""
        cursor = self._cursor
        if cursor is not None and cursor.epoch is not None and cursor.target is not None:
            cursor.begin(cursor.epoch, cursor.target)  # from now on it is of this feed
            self.epoch, self._target = cursor.epoch, cursor.target
            if self._target > self._storage.committed_epoch:
                self._storage.wait_epoch(self._target)
            self._pin(self._target if self.epoch == NEVER else self.epoch)
            return self._between(self.epoch, self._target)
        self._target = self._pin(None if since is None else _checked(since))
        self.epoch = Epoch(NEVER) if since is None else self._target
        return self._step()

    def _step(self) -> Iterator[pa.RecordBatch]:
        if self._cursor is not None:
            self._cursor.begin(self.epoch, self._target)
        return self._between(self.epoch, self._target)

    def _pin(self, epoch: Epoch | None) -> Epoch:
        """The epoch, None: the newest one: it and all later ones are readable, in place of those since the last call.
        EpochTooOld, InvalidEpoch."""
        pins = ExitStack()
        pinned = pins.enter_context(self._storage.snapshot(epoch))
        self._pins.close()
        self._pins = pins
        return pinned

    def _pass(self, epoch: Epoch) -> None:
        if epoch > self.epoch:
            self.epoch = self._target = self._pin(epoch)

    def _find_target(self, deadline: float | None) -> bool:
        """Whether the table has changed since the changes that were given; up to the newest epoch, if so. Waits for it
        if the feed follows."""
        while True:
            committed = self._storage.committed_epoch
            if committed > self.epoch:
                if self._storage.unchanged_since(self._table.id, committed) > self.epoch:
                    self._target = committed
                    return True
                self._pass(committed)
            if not self._follows or not self._wait(committed, deadline):
                return False

    def _wait(self, known: Epoch, deadline: float | None) -> bool:
        """Waits for a commit after `known`, for a while; whether there is one, or time left."""
        left = LOOK_SECONDS if deadline is None else min(deadline - monotonic_seconds(), LOOK_SECONDS)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._storage.committed_epoch > known, max(left, 0))
        self._check_open()
        self._check_runs()
        if self._cursor is not None:
            self._cursor.note(self.epoch)
        return self._storage.committed_epoch > known or deadline is None or monotonic_seconds() < deadline

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionClosed("the feed is closed")

    def _check_runs(self) -> TableCatalog:
        """The table as it is now. NotFound, JobFailed."""
        known = self._host.catalog.snapshot
        table = known.tables.get(self._table.id)
        if table is None:
            raise NotFound(f"{self._table.name!r} was dropped", name=self._table.name)
        failed = self._host.failed_jobs()
        if table.id in failed:
            raise job_error(failed[table.id], known)
        return table

    # -- rows ------------------------------------------------------------------------------------------

    def _between(self, since: Epoch, until: Epoch) -> Iterator[pa.RecordBatch]:
        """The changes from one epoch to another; since NEVER the rows."""
        if since == until:
            return iter(())
        table = self._check_runs()
        positions = {column.column_id: index for index, column in enumerate(table.columns)}
        missing = [name for column_id, name in self._columns.items() if column_id not in positions]
        if missing:
            reason = f"column {missing[0]!r} of {table.name!r} was dropped: begin a new feed"
            raise CatalogError(reason, name=missing[0])
        stored = StorageTable(table, self._storage, tuple(positions[each] for each in self._columns))
        chunks = map(StreamChunk.inserts, stored.scan(until)) if since == NEVER else stored.changes(since, until)
        return (self._batch(chunk, until) for chunk in chunks)

    def _batch(self, chunk: StreamChunk, epoch: Epoch) -> pa.RecordBatch:
        rows = chunk.compact()
        epochs = from_numbers(np.full(rows.capacity, epoch, np.uint64), pa.uint64())
        return pa.RecordBatch.from_arrays([op_texts(rows.ops), epochs, *rows.arrays], schema=self.schema)


def _checked(since: int) -> Epoch:
    if since != pure_epoch(Epoch(since)):
        raise InvalidEpoch(since, "is none that a commit has made: take one from flush(), committed_epoch or _epoch")
    return Epoch(since)
