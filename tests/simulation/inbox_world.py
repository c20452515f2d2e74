"""What the tests of the inbox share: a table with a view, and requests whose rows are known."""

from __future__ import annotations

import random

import pyarrow as pa

from hummock.object_store.base import name_minter
from relational.errors import RequestRefused
from relational.inbox.client import Inbox
from relational.inbox.payload import write_payload
from relational.inbox.records import REQUESTS, WriterBatch

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)"
VIEW = "CREATE MATERIALIZED VIEW totals AS SELECT COUNT(*) AS n, SUM(id) AS ids, SUM(v) AS vs FROM t"


def rows_of(ids) -> pa.Table:
    ids = list(ids)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([number * 7 % 101 for number in ids], pa.int64())})


def stored(session) -> list[int]:
    """The ids in the table, which the view agrees with."""
    found = session.sql("SELECT id, v FROM t").to_arrow().to_pydict()
    view = session.sql("SELECT * FROM totals").to_arrow().to_pylist()[0]
    assert found["v"] == [number * 7 % 101 for number in found["id"]]
    assert (view["n"], int(view["ids"] or 0), int(view["vs"] or 0)) == (
        len(found["id"]), sum(found["id"]), sum(found["v"]))
    return sorted(found["id"])


class Sender:
    """Sends requests to stores in memory, and looks for their answers without waiting."""

    def __init__(self, meta, objects, seed=0):
        mint = random.Random(seed).randbytes
        self.inbox = Inbox("memory://", stores=(meta, objects), timeout_ms=0, random_bytes=mint)
        self.meta, self.objects = meta, objects

    def send(self, ids, *, table="t", batch: tuple[str, str, int] | None = None, rows=None) -> str:
        """The id of a request."""
        prefix = self.inbox.register_prefix()
        batches = (rows_of(ids) if rows is None else rows).to_batches(max_chunksize=7)
        payload = write_payload(batches, self.objects, name_minter(self.inbox._random_bytes, (prefix,)))
        return self.inbox.submit(table, payload, (prefix,), None if batch is None else WriterBatch(*batch))

    def answer(self, request_id, *, table="t", batch=None):
        """The answer, or the error that the client would raise."""
        try:
            return self.inbox.wait(request_id, table, None if batch is None else WriterBatch(*batch))
        except RequestRefused as error:
            return error

    def left(self) -> int:
        """The number of open requests."""
        return len(self.meta.list(REQUESTS))
