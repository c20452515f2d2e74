"""InboxServer: carries out the requests in the inbox of the meta store, each once [R39].

The rows of a request are one INSERT, which brings the deletion of the request and its answer: the commit of its epoch
makes these in the transaction that makes the rows readable. A process that dies before it leaves the request as it was,
and the next session carries it out; one that dies after it leaves the answer. Requests that write nothing, because they
are refused or repeat a batch, are answered after a flush: whatever their refusal depends on is committed then.

A round carries out a bounded number of requests, at most one batch of each streaming writer, with one flush for all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hummock.epoch import monotonic_seconds
from hummock.errors import Corruption, FormatTooNew, InvalidOption, MetaStoreCorrupt, ObjectNotFound
from hummock.meta.records import upload_key
from hummock.meta.store.base import NONE, MetaOperations
from relational.catalog.objects import TableCatalog
from relational.errors import BatchGap, CheckpointChanged, RelationalError, RequestRefused, shortened
from relational.inbox.payload import read_payload, remove_payload
from relational.inbox.records import (
    ANSWERS,
    REQUESTS,
    WRITERS,
    InboxAnswer,
    InboxRequest,
    Outcome,
    WriterPosition,
    answer_key,
    is_new_batch,
    request_key,
)
from stream.errors import JobFailed, StatementError, StatementsLost
from stream.session.ingest import BatchIngestion, Operations, position_of
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from stream.playground import Playground
    from stream.session.queries import SessionQueries

REFUSALS = (StatementError, StatementsLost, JobFailed, RelationalError, Corruption, ObjectNotFound, InvalidOption)
MOST_REQUESTS = 64
"""Carried out between two flushes; their bytes are limited by those of uncommitted statements."""
BUSY_SECONDS, QUIET_AFTER_SECONDS = 0.02, 10.0
"""The pause between two polls for so long after the last request, and then the option `inbox_poll_ms`."""
SWEEP_SECONDS = 60.0
JOIN_SECONDS = 60.0
"""One read or write of a store."""
ANSWERS_KEPT, MOST_ANSWERS, ANSWER_MS = 1_000, 10_000, 3_600_000
"""The newest answers that are kept for any time; and at most, where others are younger than ANSWER_MS."""
DELETED_AT_ONCE = 1_000
REASON_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request of this round. `operations` end it, at the epoch of the flush; None: the commit of its rows does."""

    request: InboxRequest
    operations: Operations | None = None


class InboxServer:
    """The inbox of one session. Its thread polls, if it was started; `round` is called by one thread at a time. `error`
    is that of the last round, None if it succeeded: the next one tries again."""

    def __init__(self, playground: Playground, queries: SessionQueries, ingestion: BatchIngestion) -> None:
        self.error: Exception | None = None
        self._playground = playground
        self._queries = queries
        self._ingestion = ingestion
        self._meta_store = playground.meta_store
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._swept_at = float("-inf")

    def start(self) -> None:
        """Starts polling. REQUIRES that it was not started before."""
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No further round begins."""
        self._closed.set()

    def join(self) -> None:
        """Waits for the end of the thread, up to a limit. REQUIRES that the session has ended, so that no round waits
        for a commit."""
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        idle_seconds = self._playground.options.stream.inbox_poll_ms / 1_000
        busy_until = 0.0
        while not self._closed.is_set():
            try:
                if self.round():
                    busy_until = monotonic_seconds() + QUIET_AFTER_SECONDS
                self.error = None
            except Exception as error:
                self.error = error
                if self._has_ended():
                    return
            is_busy = monotonic_seconds() < busy_until and self.error is None
            self._closed.wait(min(BUSY_SECONDS, idle_seconds) if is_busy else idle_seconds)

    def _has_ended(self) -> bool:
        """Whether the session can commit nothing more."""
        try:
            self._playground.meta.check_alive()
        except Exception:
            return True
        return False

    # -- a round ---------------------------------------------------------------------------------------

    def round(self) -> int:
        """Carries out open requests, the oldest first; the number of those that were answered. Reads one list of rows
        where there is none. Raises errors of the stores and of the session; then requests may be left open."""
        rows = self._meta_store.list(REQUESTS)
        if not rows:
            return 0
        begun: list[_Begun] = []
        answered: list[InboxRequest] = []
        with ExitStack() as held:
            try:
                for request in _in_order(rows)[:MOST_REQUESTS]:
                    one = self._begin(request, held)
                    if one is not None:
                        begun.append(one)
            finally:
                if begun:
                    answered = self._settle(begun, self._playground.meta.flush().result())
        remove_payload([each for one in answered for each in one.objects], self._playground.object_store)
        self._sweep()
        return len(answered)

    def _begin(self, request: InboxRequest, held: ExitStack) -> _Begun | None:
        """Sends the rows of a request; None where it has to wait for another batch of its writer, which would be
        `held` until the end of the round."""
        try:
            if request.expires_ms <= self._meta_store.now_ms():
                raise RequestRefused(request.table, "RequestExpired", "no session served the store for too long")
            table, batch = self._ingestion.table_of(request.table), request.batch
            if batch is not None:
                batch.check()
                if not self._ingestion.try_hold(table, batch):
                    return None
                held.callback(self._ingestion.release, table, batch)
                position = self._ingestion.position(table, batch)
                if not is_new_batch(position, batch, request.table):
                    return _Begun(request, self._repeated(request, position))
            return self._send(request, table)
        except REFUSALS as error:
            return _Begun(request, self._refused(request, error))

    def _send(self, request: InboxRequest, table: TableCatalog) -> _Begun:
        self._queries.check_bytes(table, sum(each.row_bytes for each in request.objects))
        read = read_payload(request.objects, self._playground.object_store)
        chunk = chunk_of_rows(table, [] if read is None else read)
        operations = self._written(request, table, chunk.visible_rows)
        if not chunk.visible_rows:
            return _Begun(request, operations)
        self._queries.ingest_rows(table, chunk, operations)
        return _Begun(request)

    def _settle(self, begun: Sequence[_Begun], epoch: int) -> list[InboxRequest]:
        """Answers what the commits up to `epoch` did not answer; the requests that have an answer now."""
        operations = NONE
        for one in begun:
            if one.operations is not None:
                operations += one.operations(epoch)
            elif self._meta_store.get(answer_key(one.request.request_id)) is None:
                lost = RequestRefused(one.request.table, StatementsLost.__name__, "its table was changed, dropped or "
                                      "failed before the rows were committed")
                operations += self._refused(one.request, lost)(epoch)
        if operations:
            self._ingestion.transact(operations)
        return [one.request for one in begun]

    # -- answers ---------------------------------------------------------------------------------------

    def _written(self, request: InboxRequest, table: TableCatalog, rows: int) -> Operations:
        end, batch = self._end(request, Outcome.WRITTEN, rows=rows), request.batch
        if batch is None:
            return end
        recorded = position_of(table, batch, rows)
        return lambda epoch: end(epoch) + recorded(epoch)

    def _repeated(self, request: InboxRequest, position: WriterPosition | None) -> Operations:
        assert position is not None and request.batch is not None
        rows = position.rows if position.batch_id == request.batch.batch_id else 0
        return self._end(request, Outcome.REPEATED, rows=rows)

    def _refused(self, request: InboxRequest, error: Exception) -> Operations:
        known: WriterPosition | None = None
        kind, reason = type(error).__name__, str(error)
        if isinstance(error, RequestRefused):
            kind, reason = error.kind, error.reason
        if isinstance(error, BatchGap | CheckpointChanged) and request.batch is not None:
            checkpoint = error.known if isinstance(error, CheckpointChanged) else request.batch.checkpoint
            known = WriterPosition(checkpoint, error.last, 0, 0)
        reason = shortened(reason, REASON_BYTES)
        return self._end(request, Outcome.REFUSED, error=kind, reason=reason, known=known)

    def _end(self, request: InboxRequest, outcome: Outcome, *, rows: int = 0, error: str = "", reason: str = "",
             known: WriterPosition | None = None) -> Operations:
        """The operations that replace a request by its answer, and release its objects."""
        gone = (request_key(request.request_id), *map(upload_key, request.prefixes))
        now_ms = self._meta_store.now_ms()  # here, since a commit waits for what is below

        def operations(epoch: int) -> MetaOperations:
            answer = InboxAnswer(outcome, now_ms, rows, epoch, error, reason, known)
            return MetaOperations(put={answer_key(request.request_id): answer.to_bytes()}, delete=gone)

        return operations

    def _sweep(self) -> None:
        """Deletes old answers, and the positions of writers of tables that were dropped; now and then."""
        if monotonic_seconds() - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = monotonic_seconds()
        gone = _old_answers(self._meta_store.list(ANSWERS), self._meta_store.now_ms())
        known = self._playground.catalog.refresh().tables
        gone += [key for key, _ in self._meta_store.list(WRITERS) if int(key.split("/")[2]) not in known]
        for at in range(0, len(gone), DELETED_AT_ONCE):
            self._ingestion.transact(MetaOperations(delete=tuple(gone[at : at + DELETED_AT_ONCE])))


def _in_order(rows: Sequence[tuple[str, bytes]]) -> list[InboxRequest]:
    """The requests, the oldest first; those that only a newer release can read are left out. Whatever else cannot be
    read is a request that has expired."""
    requests = []
    for key, row in rows:
        try:
            requests.append(InboxRequest.from_bytes(key, row))
        except FormatTooNew:
            continue
        except MetaStoreCorrupt:
            requests.append(InboxRequest(key.removeprefix(REQUESTS), "", (), (), None, 0, 0))
    return sorted(requests, key=_order)


def _order(request: InboxRequest) -> tuple[int, int, str]:
    """By age; batches of one moment by their numbers."""
    return request.created_ms, -1 if request.batch is None else request.batch.batch_id, request.request_id


def _old_answers(rows: Sequence[tuple[str, bytes]], now_ms: int) -> list[str]:
    """The keys of answers that nobody waits for any more; those that cannot be read count as old."""
    ages = sorted(((_answered_ms(key, row), key) for key, row in rows), reverse=True)
    return [key for number, (answered_ms, key) in enumerate(ages)
            if number >= MOST_ANSWERS or (number >= ANSWERS_KEPT and now_ms - answered_ms >= ANSWER_MS)]


def _answered_ms(key: str, row: bytes) -> int:
    try:
        return InboxAnswer.from_bytes(key, row).answered_ms
    except (MetaStoreCorrupt, FormatTooNew):
        return 0
