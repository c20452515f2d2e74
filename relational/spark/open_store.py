"""OpenStore: a store as its readers in one driver process share it: opened once, under one lease, with its catalog."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack

from hummock.base.closing import ClosedAtExit
from hummock.compaction.subcompaction_planner import read_samples
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.options import MetaOptions, StorageOptions
from hummock.spark.worker import shared_url
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SplitSample
from hummock.store.pinned_version import LocalVersionManager
from relational.catalog.manager import CatalogManager

KEPT_SAMPLES = 8_192        # files


class OpenStore(ClosedAtExit):
    """The lease covers the oldest version that a reader has pinned in `local`, and a thread renews it; with `held_ms`
    none does, and it ends after that long. Thread safe.
    """

    def __init__(self, url: str, *, meta: str | None = None, held_ms: int | None = None):
        """`meta` is as in `hummock.open`. StoreNotFound where there is no store; nothing is made there."""
        self.url = shared_url(url)
        options = MetaOptions() if held_ms is None else MetaOptions(lease_ms=held_ms)
        with ExitStack() as opened, ExitStack() as leased:
            self.objects = open_object_store(url, create=False)
            opened.callback(self.objects.close)
            self._meta_store = open_meta_store(url, meta, object_store=self.objects, create=False, options=options)
            opened.callback(self._meta_store.close)
            self.manager = HummockManager(self._meta_store, self.objects, options=options)
            leased.callback(self.manager.close)
            self.node = f"spark-{os.urandom(8).hex()}"
            self.local = LocalVersionManager(self.manager, self.node)
            leased.callback(self.local.close)
            self.catalog = CatalogManager(self._meta_store)
            if held_ms is None:
                self.local.start(StorageOptions().refresh_ms)
            self._samples: OrderedDict[str, list[SplitSample]] = OrderedDict()     # by file, in LRU order
            self._samples_lock = threading.Lock()
            self._leased, self._opened = leased.pop_all(), opened.pop_all()

    def refresh(self) -> None:
        """Reads the newest version and catalog. Raises MetaStoreEmptied and MetaStoreReplaced."""
        self._meta_store.check_present()
        self.local.refresh()
        self.catalog.refresh()

    def samples_of(self, files: Sequence[SstableInfo]) -> list[list[SplitSample]]:
        """The split samples of each file: a read of each that was not asked for lately, for files never change."""
        with self._samples_lock:
            known = {info.name: self._samples[info.name] for info in files if info.name in self._samples}
        missing = [info for info in files if info.name not in known]
        for info, found in zip(missing, read_samples(self.objects, missing), strict=True):
            known[info.name] = list(found)
        with self._samples_lock:
            for info in files:
                self._samples[info.name] = known[info.name]
                self._samples.move_to_end(info.name)
            while len(self._samples) > KEPT_SAMPLES:
                self._samples.popitem(last=False)
        return [known[info.name] for info in files]

    def close(self) -> None:
        """Gives up the lease and closes the store. Idempotent."""
        try:
            self._leased.close()
        finally:
            self._opened.close()

    def leave(self) -> None:
        """Closes the store; what is pinned stays so until the lease ends. Idempotent."""
        self._opened.close()
