"""ViewReads: the reads of a StateStore, each on the picture of one moment. Whoever has pictures inherits them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from hummock.base.key import KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch
from hummock.epoch import Epoch
from hummock.errors import HummockError, ObjectNotFound, StoreClosed
from hummock.iterator.batch_collector import BatchCollector
from hummock.options import StorageOptions
from hummock.read.changes import ChangeReader
from hummock.read.get import read_one
from hummock.read.many_gets import read_many
from hummock.read.read_ranges import read_prefixes, read_starts
from hummock.read.view import ReadView
from hummock.state_store import DEFAULT, ReadOptions
from hummock.store.scan import HummockChanges, HummockScan
from hummock.store.stats import ReadCounts

Read = TypeVar("Read", HummockScan, HummockChanges)


class ViewReads(ABC):
    """Any thread may read. Scans and feeds end when `_end_reads` says so, and none begins from then on."""

    _view: ReadView | None = None  # of this moment; None: it has to be made

    def __init__(self, options: StorageOptions):
        self.options = options
        self._reads = ReadCounts()
        self._scans: WeakSet[HummockScan | HummockChanges] = WeakSet()
        self._scans_lock = threading.Lock()
        self._has_ended = False

    @abstractmethod
    def _open_view(self) -> ReadView:
        """The picture of this moment. StoreClosed."""

    def _explain(self, view: ReadView, error: HummockError) -> HummockError:
        """What is raised where `error` ended a read."""
        return error

    @property
    def open_reads(self) -> int:
        return len(self._scans)

    def get(self, key: bytes, epoch: Epoch, options: ReadOptions = DEFAULT) -> bytes | None:
        view = self._view or self._open_view()
        try:
            return read_one(view, key, epoch)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def get_many(self, keys: Any, epoch: Epoch, options: ReadOptions = DEFAULT) -> BinaryColumn:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(keys)
        self._reads.get_many_calls += 1
        self._reads.get_many_keys += len(wanted)
        try:
            return read_many(view, wanted, epoch)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def scan(
        self,
        key_range: KeyRange,
        epoch: Epoch,
        options: ReadOptions = DEFAULT,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> HummockScan:
        view = self._open_view()
        self._reads.scan_calls += 1
        try:
            collector = BatchCollector(view.read(key_range.start, key_range.end, epoch, reverse, options))
        except ObjectNotFound as error:
            raise self._explain(view, error) from error
        return self._under_way(HummockScan(view, collector, self.options, limit, self._explain))

    def changes(
        self, key_range: KeyRange, since: Epoch, until: Epoch, options: ReadOptions = DEFAULT
    ) -> HummockChanges:
        view = self._open_view()
        self._reads.changes_calls += 1
        try:
            reader = ChangeReader(view, key_range.start, key_range.end, since, until, options)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error
        return self._under_way(HummockChanges(view, reader, self.options, self._explain))

    def scan_prefixes(
        self, prefixes: Any, epoch: Epoch, *, reverse: bool = False, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(prefixes)
        self._reads.scan_prefixes_calls += 1
        try:
            return read_prefixes(view, wanted, epoch, reverse, limit)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def scan_many(
        self, starts: Any, epoch: Epoch, *, ends: Any = None, limit: int | None = None
    ) -> tuple[np.ndarray, KvBatch]:
        view = self._open_view()
        wanted = BinaryColumn.from_arrow(starts)
        bounds = None if ends is None else BinaryColumn.from_arrow(ends)
        self._reads.scan_many_calls += 1
        try:
            return read_starts(view, wanted, bounds, epoch, limit)
        except ObjectNotFound as error:
            raise self._explain(view, error) from error

    def _under_way(self, read: Read) -> Read:
        with self._scans_lock:
            if self._has_ended:
                raise StoreClosed("the store")
            self._scans.add(read)
        return read

    def _end_reads(self) -> None:
        with self._scans_lock:
            self._has_ended = True
            scans = list(self._scans)
        for scan in scans:
            scan.close()
