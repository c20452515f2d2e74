"""Sizes of tables: how much of a version's files belongs to each table, from the indexes of the files."""

from __future__ import annotations

from collections.abc import Iterable

from hummock.base.key import KeyRange
from hummock.sstable.info import SstableInfo
from hummock.sstable.store import SstableStore
from hummock.version import HummockVersion

NEWEST = (1 << 64) - 1
"""An epoch before all others of the same user key."""


def table_bytes(version: HummockVersion, files: SstableStore, table_ids: Iterable[int]) -> dict[int, int]:
    """Stored bytes of the rows of each table, all versions and tombstones included. A block with rows of two tables
    counts for both. Reads the index of a file that several tables share, if it is not cached; Corruption."""
    sizes = dict.fromkeys(table_ids, 0)
    for table_id in sizes:
        keys = KeyRange.table(table_id)
        for infos in version.overlapping(keys):
            sizes[table_id] += sum(_bytes_within(info, files, table_id, keys) for info in infos)
    return sizes


def table_entries(version: HummockVersion, files: SstableStore, table_ids: Iterable[int]) -> dict[int, float]:
    """Estimated entries of each table, by its share of the bytes of each file; otherwise as `table_bytes`."""
    found = dict.fromkeys(table_ids, 0.0)
    for table_id in found:
        keys = KeyRange.table(table_id)
        for info in (info for infos in version.overlapping(keys) for info in infos):
            share = _bytes_within(info, files, table_id, keys) / max(info.data_bytes, 1)
            found[table_id] += (info.rows - info.stale_rows - info.tombstones) * share
    return found


def _bytes_within(info: SstableInfo, files: SstableStore, table_id: int, keys: KeyRange) -> int:
    if table_id not in info.table_ids:
        return 0
    if len(info.table_ids) == 1:
        return info.data_bytes
    index = files.meta(info).index
    first = index[index.find(keys.start, NEWEST)]
    last = index[len(index) - 1 if keys.end is None else index.find(keys.end, NEWEST)]
    return last.offset + last.size - first.offset
