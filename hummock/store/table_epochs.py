"""TableEpochs: since which epoch a table has had the rows that it has now.

Entries of an epoch enter the version with its commit, in new files whose newest epoch is at least that one. So while
all files of a table are known ones, or hold older epochs only (a compaction wrote them), and its rules stay the same,
its rows do, and what was derived from them at one epoch (decoded columns, say) is valid at the next ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from hummock.base.key import KeyRange
from hummock.base.table_rules import TableRules
from hummock.epoch import Epoch, pure_epoch
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion

MOST_TABLES = 4_096     # that were asked for last


@dataclass(frozen=True, slots=True)
class _Known:
    """A table in the version `version`, whose newest epoch is `epoch`, with rows as since the epoch `since`."""

    version: int
    epoch: Epoch
    since: Epoch
    files: frozenset[str]
    rules: TableRules | None
    is_dropped: bool

    @classmethod
    def of(cls, version: HummockVersion, table_id: int, before: _Known | None) -> _Known:
        """`before`: what is known of it in an older version."""
        epoch, rules = version.max_committed_epoch, version.tables.get(table_id)
        is_dropped, files = table_id in version.dropped_tables, _files_of(version, table_id)
        is_same = before is not None and (rules, is_dropped) == (before.rules, before.is_dropped) and all(
            info.name in before.files or pure_epoch(info.newest_epoch) <= before.epoch for info in files)
        since = before.since if before is not None and is_same else epoch
        return cls(version.id, epoch, since, frozenset(info.name for info in files), rules, is_dropped)


def _files_of(version: HummockVersion, table_id: int) -> list[SstableInfo]:
    return [info for run in version.overlapping(KeyRange.table(table_id)) for info in run
            if table_id in info.table_ids]


class TableEpochs:
    """`newest` returns the newest version. Any thread."""

    def __init__(self, newest: Callable[[], HummockVersion]) -> None:
        self._newest = newest
        self._lock = threading.Lock()
        self._tables: OrderedDict[int, _Known] = OrderedDict()

    def unchanged_since(self, table_id: int, epoch: Epoch) -> Epoch:
        """An epoch, at most `epoch`, at which the table had the rows that it has at `epoch`: the oldest one known if
        `epoch` is the newest one, else `epoch`. It may be too old to be read."""
        with self._lock:
            version = self._newest()        # never older than those that are known: no other thread is here
            rules = version.tables.get(table_id)
            if version.max_committed_epoch != epoch or (rules is not None and rules.ttl_ms):
                return epoch
            known = self._tables.get(table_id)
            if known is None or known.version != version.id:
                known = _Known.of(version, table_id, known)
            self._tables[table_id] = known
            self._tables.move_to_end(table_id)
            if len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
            return known.since
