"""InsertBuffer: the inserts of one epoch into a table that was empty before.

A MemTable handles any change; this handles the backfill of a new table, whose first epoch is a net change of inserts,
each key once. So there is nothing to fold or to look up: columns are buffered as they arrive and sorted once, when they
are written. One writer, no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hummock.base.key import TABLE_ID_BYTES
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.errors import InvalidWriteBatch
from relational.errors import ConsistencyError
from relational.table.overlay import merged

SORT_BYTES = 48  # of sort memory per row
DRAIN_BYTES = 1 << 30  # approximate bytes of keys and values of one drained batch; Arrow's offsets end at 2 GiB


class InsertBuffer:
    """`name` and `show_key(user key)` are for error messages."""

    def __init__(self, name: str, show_key: Callable[[bytes], object]) -> None:
        self.name = name
        self._show_key = show_key
        self.clear()

    def __len__(self) -> int:
        """Rows since the last drain."""
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Memory used by keys and values, plus the memory needed to sort them."""
        return self._held_bytes + self._rows * SORT_BYTES

    waiting_bytes = size_bytes
    """The part of `size_bytes` that a drain releases."""

    def write(self, keys: BinaryColumn, values: BinaryColumn, ops: np.ndarray) -> None:
        """Buffers rows with `ops`, uint8[rows], all inserts: otherwise ConsistencyError names the key of another op,
        and the call has no effect.
        """
        if ops.any():
            raise self._error("a change that is no insert, of a table that began with nothing", keys[int(ops.argmax())])
        self._batches.append(KvBatch(keys, values))
        self._rows += len(keys)
        self._held_bytes += keys.held_bytes + values.held_bytes

    def drain(self) -> list[tuple[WriteBatch, None]]:
        """Returns the rows, in batches of ascending keys, usually one, and clears the buffer. ConsistencyError names a
        duplicate key within a batch.
        """
        batches = [(self._sorted(part), None) for part in self._parts()]
        self.clear()
        return batches

    def clear(self) -> None:
        """Discards all rows."""
        self._batches: list[KvBatch] = []
        self._rows = self._held_bytes = 0

    def _parts(self) -> Iterator[list[KvBatch]]:
        """The batches to be sorted together."""
        part, size = list[KvBatch](), 0
        for batch in self._batches:
            more = batch.keys.nbytes + batch.values.nbytes
            if part and size + more > DRAIN_BYTES:
                yield part
                part, size = [], 0
            part.append(batch)
            size += more
        if part:
            yield part

    def _sorted(self, part: list[KvBatch]) -> WriteBatch:
        rows = merged(part, [0] * len(part), list(map(len, part)), TABLE_ID_BYTES)
        try:
            return WriteBatch(rows.keys, rows.values)
        except InvalidWriteBatch as error:
            if error.row is None or error.row == 0 or rows.keys[error.row] != rows.keys[error.row - 1]:
                raise
            raise self._error("insert of a row that was inserted before", rows.keys[error.row]) from error

    def _error(self, message: str, key: bytes) -> ConsistencyError:
        return ConsistencyError(message, table=self.name, key=self._show_key(key))
