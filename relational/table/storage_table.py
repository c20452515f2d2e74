"""StorageTable: the rows of a table at one epoch, chosen columns, read only.

What batch queries, back-fills and readers in other processes use. It holds no state; any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hummock.epoch import Epoch
from hummock.key import KeyRange, successor_of_prefix
from hummock.state_store import StateStore
from relational.catalog.objects import TableCatalog
from relational.chunk.data_chunk import DataChunk
from relational.table.row_serde import Row, RowSerde
from relational.table.store_scan import concatenated, in_key_order
from relational.types import Schema


@dataclass(frozen=True, slots=True)
class RowRange:
    """Bounds on the pk column that follows a prefix; None is open. NULL lies within no bounds."""

    lower: object = None
    upper: object = None
    includes_lower: bool = True
    includes_upper: bool = False


class StorageTable:
    """`columns` are column indices of the catalog, in the order of the result; None: all of them."""

    def __init__(self, catalog: TableCatalog, store: StateStore, columns: Sequence[int] | None = None):
        self.catalog = catalog
        self.serde = RowSerde(catalog, columns)
        self.schema = Schema(tuple(catalog.schema.fields[column] for column in self.serde.columns))
        self._store = store

    def get_row(self, pk: Row, epoch: Epoch) -> Row | None:
        """The row under `pk` at `epoch`, or None."""
        rows, found = self.get_rows(self.serde.pk_chunk([tuple(pk)]), epoch)
        return next(iter(rows.rows())) if found[0] else None

    def get_rows(self, pks: DataChunk, epoch: Epoch) -> tuple[DataChunk, np.ndarray]:
        """(rows, found uint8) for each visible row of `pks`, which has the pk columns in key order, in one
        read. Where nothing is found the row is NULL beside its key.
        """
        pks = pks.compact()
        keys, _ = self.serde.keys_of_pks(pks.columns, pks.capacity)
        values = self._store.get_many(keys, epoch)
        found = values.to_arrow().is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        return self.serde.decode_found(pks.arrays, values), found

    def scan(
        self,
        epoch: Epoch,
        prefix: Row = (),
        bounds: RowRange | None = None,
        *,
        ordered: bool = False,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[DataChunk]:
        """The rows at `epoch` whose pk begins with `prefix`, the next pk column within `bounds`.

        `ordered`: in key order, a merge over the vnodes where the prefix leaves them open. Otherwise in key
        order within each vnode. At most `limit` rows.
        """
        ranges = self._ranges(tuple(prefix), bounds, ordered)
        read = in_key_order if ordered else concatenated
        for batch in read(self._store, ranges, epoch, reverse=reverse, limit=limit):
            yield self.serde.decode(batch.keys, batch.values)

    def to_arrow(self, epoch: Epoch) -> pa.Table:
        """All rows at `epoch`, in no order."""
        batches = [chunk.to_arrow(self.schema) for chunk in self.scan(epoch)]
        return pa.Table.from_batches(batches, schema=self.schema.arrow)

    def _ranges(self, prefix: Row, bounds: RowRange | None, ordered: bool) -> list[KeyRange]:
        if not prefix and bounds is None and not ordered:
            return [KeyRange.table(self.catalog.id)]
        ranges = self.serde.ranges(self.serde.prefix_columns(prefix), None)
        if bounds is None:
            return ranges
        if len(prefix) == len(self.serde.pk):
            raise ValueError(f"bounds behind a prefix of all {len(prefix)} key columns")
        tails = self._tails(prefix, bounds)
        return [KeyRange(part.start + tails.start, _joined(part.start, tails.end)) for part in ranges]

    def _tails(self, prefix: Row, bounds: RowRange) -> KeyRange:
        """What keys within `bounds` have behind the prefix."""
        skip = len(self.serde.key_encoder.encode_row(prefix))
        low, high = bounds.lower, bounds.upper
        has_low, has_high = bounds.includes_lower, bounds.includes_upper
        if self.catalog.pk[len(prefix)].order.descending:
            low, high, has_low, has_high = high, low, has_high, has_low
        value_tag = bytes([self._tail(prefix, None, skip)[0] ^ 1])
        start, end = value_tag, successor_of_prefix(value_tag)
        if low is not None:
            found = self._tail(prefix, low, skip)
            start = found if has_low else successor_of_prefix(found)
        if high is not None:
            found = self._tail(prefix, high, skip)
            end = successor_of_prefix(found) if has_high else found
        return KeyRange(start, end)

    def _tail(self, prefix: Row, value: object, skip: int) -> bytes:
        return self.serde.key_encoder.encode_row((*prefix, value))[skip:]


def _joined(prefix: bytes, tail: bytes | None) -> bytes | None:
    """The end of a range of tails behind `prefix`; None: the end of the keys that begin with it."""
    return successor_of_prefix(prefix) if tail is None else prefix + tail
