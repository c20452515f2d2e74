"""Inbox: hands rows from any process to the session that serves a store, through the meta store.

    with Inbox("file:///data/store") as inbox:
        inbox.insert("orders", arrow_table)
        inbox.ingest("orders", arrow_table, writer="loader", checkpoint="run 7", batch_id=12)

The rows are written as objects first, then named by a small row of the meta store. The serving session inserts them
like an INSERT and answers in the commit that holds them, so each request is carried out once, whatever process dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from hummock.epoch import monotonic_seconds
from hummock.errors import InvalidOption, MetaStoreBusy, MetaStoreError, OutcomeUnknown, PreconditionFailed
from hummock.meta import open_meta_store
from hummock.meta.records import Upload, decode, encode, upload_key
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.object_store import open_object_store
from hummock.object_store.base import (
    NAME_PREFIX_DIGITS,
    ObjectStore,
    RandomBytes,
    mint_sstable_name,
    name_minter,
)
from hummock.object_store.url import store_url
from relational.errors import RequestRefused, RequestUnanswered
from relational.inbox.payload import PayloadObject, check_count, write_payload
from relational.inbox.records import (
    InboxAnswer,
    InboxRequest,
    Outcome,
    WriterBatch,
    answer_key,
    is_new_batch,
    request_key,
)

NODE = "inbox"
TIMEOUT_MS = 600_000
REGISTERED_MS = 24 * 3_600_000      # between the registration of a prefix and the request that names its objects
REQUEST_MS = 7 * 24 * 3_600_000     # an open request is refused after that
ATTEMPTS = 16                       # at one transaction
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5      # seconds between two looks for an answer, doubled each time


class Inbox:
    """A client of the session that serves the store at `url`, whose metadata is at `meta` as in `hummock.open`.

    A call waits up to `timeout_ms` for the answer. Thread safe. Raises `InvalidOption` for a store that only one
    process sees, and `StoreNotFound` where there is no store.
    """

    def __init__(self, url: str | os.PathLike[str], *, meta: str | None = None, timeout_ms: int = TIMEOUT_MS,
                 stores: tuple[MetaStore, ObjectStore] | None = None, random_bytes: RandomBytes = os.urandom,
                 sleep: Callable[[float], None] = time.sleep):
        """`stores`: opened stores, which belong to the caller; None: those at `url`."""
        self._random_bytes, self._sleep, self.timeout_ms = random_bytes, sleep, timeout_ms
        with ExitStack() as opened:
            if stores is None:
                url = store_url(url)
                if url.startswith("memory:"):
                    raise InvalidOption("url", url, "a store that several processes see: file://, s3://, ...")
                objects = open_object_store(url, create=False)
                opened.callback(objects.close)
                meta_store = open_meta_store(url, meta, object_store=objects, create=False)
                opened.callback(meta_store.close)
                stores = meta_store, objects
            self._meta_store, self._objects = stores
            self._opened = opened.pop_all()

    # -- requests ------------------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> InboxAnswer:
        """Inserts `rows`, an Arrow table or whatever Arrow can import (pandas, polars), whose columns are matched by
        name; returns when they are committed. RequestRefused, with the table's own error: nothing was inserted.
        RequestUnanswered.
        """
        return self._sent(table, rows, None)

    def ingest(self, table: str, rows: Any, *, writer: str, batch_id: int, checkpoint: str) -> InboxAnswer:
        """As `insert`, for batch `batch_id` of the streaming writer named `writer`, whose checkpoint has the id
        `checkpoint`: batches are inserted in order, each once; one that is in the table is skipped. Its rows may be
        none. BatchGap, CheckpointChanged.
        """
        return self._sent(table, rows, WriterBatch(writer, checkpoint, batch_id))

    def _sent(self, table: str, rows: Any, batch: WriterBatch | None) -> InboxAnswer:
        if batch is not None:
            batch.check()
        whole = rows if isinstance(rows, pa.Table) else pa.table(rows)
        prefix = self.register_prefix()
        payload = write_payload(whole.to_batches(), self._objects, name_minter(self._random_bytes, (prefix,)))
        return self.wait(self.submit(table, payload, (prefix,), batch), table, batch)

    # -- the steps of a request ----------------------------------------------------------------------------

    def register_prefix(self) -> str:
        """A new prefix of object names: vacuum keeps the objects under it for a day, and while a request names it."""
        prefix = self._random_bytes(NAME_PREFIX_DIGITS // 2).hex()
        row = Upload(NODE, self._random_bytes(16).hex(), self._meta_store.now_ms() + REGISTERED_MS)
        key = upload_key(prefix)
        self._write(MetaOperations(require={key: None}, put={key: encode(row)}), (key,))
        return prefix

    def submit(self, table: str, payload: Sequence[PayloadObject], prefixes: Sequence[str],
               batch: WriterBatch | None = None) -> str:
        """Creates a request for rows under registered prefixes; its id. From then on it is carried out, once.

        RequestRefused if a registration has expired: vacuum may have removed the objects. InvalidOption.
        """
        check_count(payload)
        request_id, now_ms = mint_sstable_name(self._random_bytes), self._meta_store.now_ms()
        request = InboxRequest(request_id, table, tuple(payload), tuple(prefixes), batch, now_ms, now_ms + REQUEST_MS)
        keys = request_key(request_id), answer_key(request_id)
        require: dict[str, bytes | None] = dict.fromkeys(keys)
        put = {keys[0]: request.to_bytes()}
        for prefix in prefixes:
            key = upload_key(prefix)
            row = require[key] = self._meta_store.get(key)
            if row is None:
                raise self._expired(table)
            # It outlives the request, whose end deletes it.
            upload = Upload(NODE, decode(Upload, key, row).holder, now_ms + 2 * REQUEST_MS)
            put[key] = encode(upload)
        try:
            self._write(MetaOperations(require=require, put=put), keys)
        except PreconditionFailed as error:
            raise self._expired(table) from error
        return request_id

    def wait(self, request_id: str, table: str, batch: WriterBatch | None = None) -> InboxAnswer:
        """The answer to a request. RequestRefused and its subclasses; RequestUnanswered."""
        deadline, pause = monotonic_seconds() + self.timeout_ms / 1_000, FIRST_PAUSE
        key = answer_key(request_id)
        while True:
            try:
                row = self._meta_store.get(key)
            except MetaStoreBusy:
                row = None
            if row is not None:
                return _accepted(InboxAnswer.from_bytes(key, row), table, batch)
            if monotonic_seconds() >= deadline:
                raise RequestUnanswered(request_id, self.timeout_ms / 1_000)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _write(self, operations: MetaOperations, created: Sequence[str]) -> None:
        """Runs a transaction that creates a row of a new random key. Whether a try whose outcome is unknown succeeded
        is read from the rows `created`, of which one is there afterwards. PreconditionFailed.
        """
        failure: MetaStoreError | None = None
        for _ in range(ATTEMPTS):
            try:
                self._meta_store.transaction(operations)
                return
            except (OutcomeUnknown, MetaStoreBusy) as error:
                failure = error
                self._sleep(FIRST_PAUSE)
            except PreconditionFailed:
                if failure is not None and any(self._meta_store.get(key) is not None for key in created):
                    return
                raise
        assert failure is not None
        raise failure

    def _expired(self, table: str) -> RequestRefused:
        return RequestRefused(table, "UploadExpired", f"its rows were written more than {REGISTERED_MS // 3_600_000} "
                                                      "hours ago, and may have been removed: write them again")

    # -- end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the stores that it opened. Open requests stay. Idempotent."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _accepted(answer: InboxAnswer, table: str, batch: WriterBatch | None) -> InboxAnswer:
    """The answer itself, unless the request was refused: then its error is raised."""
    if answer.outcome is not Outcome.REFUSED:
        return answer
    if answer.known is not None and batch is not None:
        is_new_batch(answer.known, batch, table)
    raise RequestRefused(table, answer.error, answer.reason)
