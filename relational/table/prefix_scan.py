"""Rows under many key prefixes: asked of the store in one call for many, with this epoch's operations laid over.

A store's answer to one call ends at 2 GiB, so where many prefixes have too many rows they are asked for in halves.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch
from relational.errors import ConsistencyError
from relational.table.mem_table import MemTable
from relational.table.overlay import overlay
from relational.table.prefix_merge import first_rows
from relational.table.row_layout import RowStore
from relational.table.scan import concatenated

MAX_FETCHED = 1 << 20  # rows asked of the store under one prefix before `first_under` gives up
ALL_ROWS = 1 << 62
PREFIXES_AT_ONCE = 1_024


def first_under(
    store: RowStore, mem: MemTable, epoch: Epoch, keys: BinaryColumn, limit: int
) -> tuple[np.ndarray, KvBatch]:
    """(int32 row of `keys` of each result row, ascending; the first `limit` rows under each user key prefix).

    Asks for more where this epoch has deleted some; ConsistencyError where those are more than can be.
    """
    asked, fetched = np.arange(len(keys), dtype=np.int32), limit
    owners, batches = [], []
    while len(asked):
        if fetched > MAX_FETCHED:
            raise ConsistencyError(f"{fetched} rows under a prefix are deleted in one epoch", table=mem.name)
        part = BinaryColumn.from_arrow(keys.to_arrow().take(asked)) if len(asked) < len(keys) else keys
        rows, stored = store.scan_prefixes(part, epoch, limit=fetched)
        found, batch, unfinished = first_rows(mem, part, rows, stored, limit, fetched)
        owners.append(asked[found])
        batches.append(batch)
        asked, fetched = asked[unfinished], fetched * 4
    if len(batches) == 1:
        return owners[0], batches[0]
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate(owners)[order], KvBatch(
        pa.concat_arrays([batch.keys.to_arrow() for batch in batches]).take(order),
        pa.concat_arrays([batch.values.to_arrow() for batch in batches]).take(order),
    )


def all_under(
    store: RowStore, mem: MemTable, epoch: Epoch, keys: BinaryColumn
) -> Iterator[tuple[np.ndarray, KvBatch]]:
    """Every row under each user key prefix, in the same form, some prefixes at a time; writes between two parts are
    seen by the parts that follow.
    """
    waiting = [
        (start, min(start + PREFIXES_AT_ONCE, len(keys)))
        for start in reversed(range(0, len(keys), PREFIXES_AT_ONCE))
    ]
    while waiting:
        start, end = waiting.pop()
        part = keys.slice(start, end - start)
        try:
            rows, stored = store.scan_prefixes(part, epoch)
        except OverflowError:
            if end - start == 1:
                yield from _under_one(store, mem, epoch, keys[start], start)
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
            continue
        owners, batch, _ = first_rows(mem, part, rows, stored, ALL_ROWS, ALL_ROWS)
        yield owners + np.int32(start), batch


def laid_over(rows: Iterator[KvBatch], changes: KvBatch, skip: int, reverse: bool) -> Iterator[KvBatch]:
    """Batches in order of their keys less `skip` bytes, with changes in the same order laid over them."""
    position = 0
    for batch in rows:
        batch, position = overlay(batch, changes, position, skip, reverse)
        if len(batch):
            yield batch
    batch, _ = overlay(None, changes, position, skip, reverse)
    if len(batch):
        yield batch


def _under_one(
    store: RowStore, mem: MemTable, epoch: Epoch, prefix: bytes, owner: int
) -> Iterator[tuple[np.ndarray, KvBatch]]:
    part = KeyRange.prefix(prefix)
    changes = mem.range(part.start, part.end)
    for batch in laid_over(concatenated(store, [part], epoch), changes, 0, False):
        yield np.full(len(batch), owner, np.int32), batch
