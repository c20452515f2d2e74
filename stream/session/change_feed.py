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
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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


class Held:
    """What a feed holds of its session: the epochs that it reads, and what a commit wakes. It does not refer to the
    feed, which is collected when nobody has it. Thread safe."""

    def __init__(self, host: Host) -> None:
        self._storage = host.storage
        self._changed = threading.Condition()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._pins = ExitStack()
        self._is_dropped = False
        self.is_closed = False
        self._commits = host.manager.subscribe(lambda version: self._committed())

    def pin(self, epoch: Epoch | None) -> Epoch:
        """The epoch, None: the newest one: it and all later ones are readable, in place of those since the last call.
        EpochTooOld, InvalidEpoch."""
        pins = ExitStack()
        pinned = pins.enter_context(self._storage.snapshot(epoch))
        with self._changed:
            before, self._pins = self._pins, pins
        before.close()
        if self.is_closed:
            self._unpin()
        return pinned

    def wait(self, epoch: Epoch, seconds: float) -> None:
        """Waits for a commit after `epoch`, or for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._storage.committed_epoch > epoch, seconds)

    @contextmanager
    def waking(self, event: asyncio.Event) -> Iterator[None]:
        """Within the block each commit sets `event`, and so does the end. REQUIRES the event's running loop."""
        entry = asyncio.get_running_loop(), event
        with self._changed:
            self._waiting.add(entry)
        try:
            yield
        finally:
            with self._changed:
                self._waiting.discard(entry)

    def drop(self) -> None:
        """As `close`, for a destructor, which must not lock: takes effect at the next commit."""
        self._is_dropped = True

    def end(self) -> None:
        """Wakes all that wait. Idempotent."""
        self.is_closed = True
        self._wake()

    def close(self) -> None:
        """Releases it. Idempotent."""
        self.end()
        self._commits.close()
        self._unpin()

    def _unpin(self) -> None:
        with self._changed:
            pins, self._pins = self._pins, ExitStack()
        pins.close()

    def _committed(self) -> None:
        if self._is_dropped:
            self.close()
        else:
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
            waiting = list(self._waiting)
        for loop, event in waiting:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(event.set)


class ChangeFeed(ClosedAtExit):
    """An iterator, and an asynchronous one, over record batches: `_op` (`+` an inserted row, `-` a deleted one, `U-`
    and `U+` the adjacent halves of an update), `_epoch` (uint64), then the columns that the table had when the feed was
    made. All batches of one `_epoch` lead from the rows at `epoch` to the rows at that one, each key once.

    Any thread may read, each batch is given once; any may call `close`, which ends a waiting one. `async for` holds no
    thread while it waits, and if it is cancelled, the next reader has the batch. A feed that nobody has any more is
    closed, unless `start` has begun. NotFound if the table is dropped, JobFailed if its job is set aside, CatalogError
    if it loses a column; SnapshotExpired if this process was suspended for so long that what it reads was given up."""

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
        self._reading = threading.Lock()
        self._untaken: deque[pa.RecordBatch] = deque()  # what was read for a reader that was cancelled
        self._broken: BaseException | None = None  # what ended a step, of which a part was given
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What ended `start`."""
        self.epoch = Epoch(NEVER)
        """All changes up to this epoch were given, and the next batch was asked for."""
        self._cursor = None
        if cursor is not None:
            self._cursor = ChangeCursor(host.manager, host.meta_store, cursor, table.id, retention_ms)
        self._held = Held(host)
        try:
            self._batches: Iterator[pa.RecordBatch] | None = self._first_step(since)
        except BaseException:
            self._held.close()
            raise
        weakref.finalize(self, self._held.drop).atexit = False
        host.feeds.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._held.is_closed else f"up to epoch {self.epoch}"
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
            with self._reading:
                batch = self._take()
            if batch is not None or not self._follows or not self._wait(deadline):
                return batch

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
        self._held.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._cursor is not None and self.epoch == self._target != self._cursor.epoch:
            with suppress(HummockError, StreamError):  # then it comes again, by its epoch
                self._cursor.begin(self.epoch, self.epoch)
        self._held.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self.read()
            except SessionClosed:
                return
            if batch is None:
                return
            yield batch

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return AsyncBatches(self)

    async def read_async(self) -> pa.RecordBatch | None:
        """As `read()`; if it is cancelled, the next call has the batch. Only what takes time is done in a thread."""
        event = asyncio.Event()
        with self._held.waking(event):
            while True:
                event.clear()
                await asyncio.to_thread(self._read_one)
                with suppress(IndexError):
                    return self._untaken.popleft()
                if not self._follows:
                    return None
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await event.wait()

    def _read_one(self) -> None:
        """Reads the next batch that is there, if nobody has to take one that was read."""
        with self._reading:
            batch = self._take()
            if batch is not None:
                self._untaken.append(batch)

    def _take(self) -> pa.RecordBatch | None:
        """The next batch that is there; None if there is none. REQUIRES `_reading`."""
        self._check_open()
        if self._broken is not None:
            raise StreamError("the feed has ended within a step: begin another one after its epoch") from self._broken
        with suppress(IndexError):
            return self._untaken.popleft()
        while True:
            if self._batches is None:
                self._batches = self._step()
            try:
                batch = next(self._batches, None)
            except BaseException as error:
                self._broken = error
                raise
            if batch is not None:
                return batch
            self._pass(self._target)
            if not self._find_target():
                break
            self._batches = None
        if self._follows:
            self._check_runs()
            if self._cursor is not None:
                self._cursor.note(self.epoch)
        return None

    # -- epochs ----------------------------------------------------------------------------------------

    def _first_step(self, since: int | None) -> Iterator[pa.RecordBatch]:
        """Goes on at the cursor, else after `since`, else with the rows that are there."""
        cursor = self._cursor
        if cursor is not None and cursor.epoch is not None and cursor.target is not None:
            cursor.begin(cursor.epoch, cursor.target)  # from now on it is of this feed
            self.epoch, self._target = cursor.epoch, cursor.target
            if self._target > self._storage.committed_epoch:
                self._storage.wait_epoch(self._target)
            self._held.pin(self._target if self.epoch == NEVER else self.epoch)
            return self._between(self.epoch, self._target)
        self._target = self._held.pin(None if since is None else checked_epoch(since))
        self.epoch = Epoch(NEVER) if since is None else self._target
        return self._step()

    def _step(self) -> Iterator[pa.RecordBatch]:
        if self._cursor is not None:
            self._cursor.begin(self.epoch, self._target)
        return self._between(self.epoch, self._target)

    def _pass(self, epoch: Epoch) -> None:
        if epoch > self.epoch:
            self.epoch = self._target = self._held.pin(epoch)

    def _find_target(self) -> bool:
        """Whether the table has changed since the changes that were given; up to the newest epoch, if so."""
        committed = self._storage.committed_epoch
        if committed > self.epoch:
            if self._storage.unchanged_since(self._table.id, committed) > self.epoch:
                self._target = committed
                return True
            self._pass(committed)
        return False

    def _wait(self, deadline: float | None) -> bool:
        """Waits for a commit, for a while; whether there is one, or time left."""
        left = LOOK_SECONDS if deadline is None else min(deadline - monotonic_seconds(), LOOK_SECONDS)
        self._held.wait(self.epoch, max(left, 0))
        self._check_open()
        return self._storage.committed_epoch > self.epoch or deadline is None or monotonic_seconds() < deadline

    def _check_open(self) -> None:
        if self._held.is_closed:
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
        return _batches_of(chunks, until, self.schema)  # which does not refer to the feed


class AsyncBatches(AsyncIterator[pa.RecordBatch]):
    """The batches of a feed. A `__anext__` that is cancelled does not end it."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    async def __anext__(self) -> pa.RecordBatch:
        batch = None
        with suppress(SessionClosed):
            batch = await self._feed.read_async()
        if batch is None:
            raise StopAsyncIteration
        return batch


def _batches_of(chunks: Iterable[StreamChunk], epoch: Epoch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        rows = chunk.compact()
        epochs = from_numbers(np.full(rows.capacity, epoch, np.uint64), pa.uint64())
        yield pa.RecordBatch.from_arrays([op_texts(rows.ops), epochs, *rows.arrays], schema=schema)


def checked_epoch(epoch: int) -> Epoch:
    """InvalidEpoch for a number that no commit can have."""
    if not isinstance(epoch, int) or epoch != pure_epoch(Epoch(epoch)):
        raise InvalidEpoch(epoch, "is none that a commit has made: take one from flush(), committed_epoch or _epoch")
    return Epoch(epoch)
