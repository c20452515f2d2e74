"""ScanPositions: how far the rows of a table were read, vnode by vnode, in key order.

A scan that takes many epochs stores its position in each vnode with the epoch [R17]: a row per vnode of a state table,
with the key of the last row that was read, without table id and vnode; whether that was the last row of the vnode; and
the number of rows read. Of a scan that is apart from the graph there is one more row, of vnode -1, whose key is the
epoch up to which it has read the changes of the rows at or below the positions, 8 bytes, big-endian. Without it these
rows are as of the epoch of the positions.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.base.key import KeyRange, user_key, vnode_of
from hummock.columnar.binary_column import BinaryColumn
from hummock.epoch import NEVER, Epoch, EpochPair
from relational.catalog.objects import TableCatalog
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.table.row_serde import RowSerde
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable

SINCE = -1
"""Instead of a vnode, in the row with the epoch of the rows that were read."""


class RowKeys(NamedTuple):
    """The user keys of n rows, and uint16[n], their vnodes."""

    user_keys: BinaryColumn
    vnodes: np.ndarray


def keys_of(table: TableCatalog, chunk: StreamChunk) -> RowKeys:
    """The keys of complete rows of a table, hidden ones included."""
    return RowKeys(*RowSerde(table, ()).keys_of(chunk))


class ScanPositions:
    """How far the existing rows of each vnode of an actor were read.

    `scanned` is the table that is read, `owned` uint8[vnode_count], None: all. Stored in `table`, one row per vnode;
    without one everything was read. So it was if the job `is_loaded`, whatever the table says."""

    def __init__(
        self,
        scanned: TableCatalog,
        table: StateTable | None = None,
        owned: np.ndarray | None = None,
        *,
        is_loaded: bool = False,
    ):
        self._table_id, vnode_count = scanned.id, scanned.vnode_count
        self._is_loaded = is_loaded
        self._table = table
        self._owned = np.ones(vnode_count, bool) if owned is None else owned.astype(bool)
        self._done = np.ones(vnode_count, bool)
        self._keys: dict[int, bytes] = {}  # vnode that is read in part -> user key of the last row
        self._rows: dict[int, int] = {}  # vnode -> rows read so far
        self._stored: dict[int, tuple] = {}
        self._changed: set[int] = set()  # vnodes whose row must be written
        self.since: Epoch | None = None
        """The epoch up to which the changes of the rows that were read are read too; None: that of the positions."""

    @property
    def is_done(self) -> bool:
        """Whether all rows were read."""
        return bool(self._done.all())

    def init_epoch(self, epoch: EpochPair) -> None:
        """At the first barrier: continue from the stored positions."""
        if self._table is None:
            return
        self._table.init_epoch(epoch)
        self._done = ~self._owned
        for row in (row for chunk in self._table.scan_chunks() for row in chunk.rows()):
            vnode, key, is_done, rows = row
            if vnode == SINCE:
                self.since, self._stored[SINCE] = Epoch(int.from_bytes(key)), row
            elif self._owned[vnode]:
                self._stored[vnode] = row
                self._done[vnode], self._rows[vnode] = is_done, rows
                if not is_done:
                    self._keys[vnode] = user_key(self._table_id, vnode, key)
        if self._is_loaded:
            self.finish()

    def commit(self, epoch: EpochPair) -> None:
        """Write the positions that changed."""
        if self._table is None:
            return
        changes: list[tuple[Op, tuple]] = self._changes_of_since() if self._owned[0] else []
        for vnode in sorted(self._changed):
            row, before = self._row(vnode), self._stored.get(vnode)
            if before is not None:
                changes += [(Op.UPDATE_DELETE, before), (Op.UPDATE_INSERT, row)]
            else:
                changes.append((Op.INSERT, row))
            self._stored[vnode] = row
        self._changed.clear()
        if changes:
            self._table.write_chunk(StreamChunk.from_rows(self._table.catalog.schema, changes))
        self._table.commit(epoch)

    def _changes_of_since(self) -> list[tuple[Op, tuple]]:
        """Of its row, which the owner of the first vnode writes."""
        before = self._stored.pop(SINCE, None)
        row = None if self.since is None else (SINCE, self.since.to_bytes(8), False, 0)
        changes = [] if before is None else [(Op.DELETE if row is None else Op.UPDATE_DELETE, before)]
        if row is not None:
            self._stored[SINCE] = row
            changes.append((Op.INSERT if before is None else Op.UPDATE_INSERT, row))
        return changes

    def finish(self) -> None:
        """Everything was read by other means."""
        self._changed.update(np.flatnonzero(~self._done).tolist())
        self._done[:] = True
        self._keys.clear()

    def ranges(self) -> Iterator[tuple[KeyRange, int, int]]:
        """(user keys, first vnode, last vnode) of the rows that were not read yet: runs of neighbouring vnodes, in
        order; a vnode that was read in part begins a run."""
        for first, last in _runs(~self._done, self._keys):
            begin = _end_of_row(self._keys[first]) if first in self._keys else user_key(self._table_id, first, b"")
            yield KeyRange(begin, self._end_of(last)), first, last

    def passed_ranges(self) -> Iterator[KeyRange]:
        """The user keys at or below the positions, in few ranges."""
        for first, last in _runs(self._owned & self._done, ()):
            yield KeyRange(user_key(self._table_id, first, b""), self._end_of(last))
        for vnode, key in self._keys.items():
            yield KeyRange(user_key(self._table_id, vnode, b""), _end_of_row(key))

    def advance(self, first: int, last_key: bytes, rows: int) -> int:
        """`rows` more rows, up to user key `last_key`, of a run that begins with vnode `first` were read; the vnode of
        that key."""
        vnode = vnode_of(last_key)
        self._finish_vnodes(first, vnode)
        self._keys[vnode] = last_key
        self._rows[vnode] = self._rows.get(vnode, 0) + rows
        self._changed.add(vnode)
        return vnode

    def end_run(self, first: int, last: int) -> None:
        """The run of vnodes `first` to `last` was read."""
        self._finish_vnodes(first, last + 1)

    def passed(self, keys: RowKeys) -> np.ndarray:
        """uint8[n]: 1 for rows at or below the position of their vnode."""
        found = self._done[keys.vnodes]
        for vnode, position in self._keys.items():
            of_vnode = np.flatnonzero(keys.vnodes == vnode)
            if len(of_vnode):
                some = keys.user_keys.to_arrow().take(pa.array(of_vnode))
                found[of_vnode] = pc.less_equal(some, pa.scalar(position, some.type)).to_numpy(zero_copy_only=False)
        return found.view(np.uint8)

    def _finish_vnodes(self, first: int, end: int) -> None:
        self._changed.update(range(first, end))
        self._done[first:end] = True
        for vnode in [each for each in self._keys if first <= each < end]:
            del self._keys[vnode]

    def _end_of(self, vnode: int) -> bytes | None:
        """The first user key after those of a vnode of the table."""
        is_last = vnode + 1 == len(self._done)
        return KeyRange.table(self._table_id).end if is_last else user_key(self._table_id, vnode + 1, b"")

    def _row(self, vnode: int) -> tuple:
        key = self._keys.get(vnode, b"")
        prefix = len(user_key(self._table_id, vnode, b""))
        return vnode, key[prefix:], bool(self._done[vnode]), self._rows.get(vnode, 0)


def _end_of_row(key: bytes) -> bytes:
    """The first user key after all entries of the row with this user key, which begin with it: one, or one of each of
    its values. No key of another row begins with it."""
    end = KeyRange.prefix(key).end
    assert end is not None, key
    return end


def _runs(chosen: np.ndarray, starts: Container[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of neighbouring `chosen` vnodes, ascending; one of `starts` begins a run."""
    left = np.flatnonzero(chosen).tolist()
    while left:
        count = 1
        while count < len(left) and left[count] == left[0] + count and left[count] not in starts:
            count += 1
        yield left[0], left[count - 1]
        del left[:count]


def stored_since(table: StorageTable, epoch: Epoch) -> Epoch | None:
    """`ScanPositions.since` as of `epoch`, read from the `table` of the positions; NEVER if it has no positions."""
    row = table.get_row((SINCE,), epoch)
    if row is not None:
        _, key, _, _ = row
        assert isinstance(key, bytes)
        return Epoch(int.from_bytes(key))
    return None if any(chunk.capacity for chunk in table.scan(epoch, limit=1)) else NEVER
