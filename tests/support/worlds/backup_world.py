"""A store with a model of its content at each committed epoch, for tests of backups."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch, EpochGenerator
from hummock.maintenance import Maintenance
from hummock.meta.hummock_manager import HummockManager
from hummock.options import CompactionOptions, StorageOptions, VacuumOptions
from hummock.store.storage import HummockStorage

SMALL = CompactionOptions(l0_runs=2, history_ms=0, sstable_bytes=8_192, block_bytes=512, range_bytes=16_384,
                          l0_base_bytes=1, base_level_bytes=16_384)
TABLES, VNODES, KEYS = 3, 4, 200


class BackupWorld:
    """A writer on the given stores; `maintained`: with compaction, and a vacuum that removes at once. `inline_bytes` of
    about 2,000 makes some commits inline and others not.
    """

    def __init__(self, meta_store, objects, *, seed: int = 0, maintained: bool = False, inline_bytes: int = 0):
        self.meta_store, self.objects, self.rng = meta_store, objects, random.Random(seed)
        self.rows: dict[bytes, bytes] = {}
        self.content: dict[Epoch, dict[bytes, bytes]] = {}
        self._open = ExitStack()
        self.manager = HummockManager(meta_store, objects, compaction=SMALL)
        self._open.callback(self.manager.close)
        session = self.manager.claim_writer()
        self.storage = self._open.enter_context(closing(HummockStorage(
            self.manager, objects, StorageOptions(block_bytes=512, sstable_bytes=8_192, inline_bytes=inline_bytes),
            session=session)))
        self.storage.follow_versions()
        self._epochs = EpochGenerator(last=self.storage.committed_epoch)
        if maintained:
            options = VacuumOptions(interval_ms=20, pause_ms=1, listing_ms=50, grace_ms=0)
            maintenance = Maintenance(self.manager, meta_store, objects, vacuum=options)
            self._open.callback(maintenance.close)
            maintenance.start()

    def commit(self) -> Epoch:
        """Commits an epoch of random puts and deletes."""
        epoch = self._epochs.next()
        batch: dict[bytes, bytes | None] = {}
        for _ in range(self.rng.randint(1, 80)):
            key = hummock.user_key(self.rng.randrange(1, TABLES + 1), self.rng.randrange(VNODES),
                                   b"%04d" % self.rng.randrange(KEYS))
            batch[key] = None if self.rng.random() < 0.3 else self.rng.randbytes(self.rng.randrange(60))
        self.storage.ingest_batch(WriteBatch(sorted(batch.items())), epoch)
        for key, value in batch.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self.content[epoch] = dict(self.rows)
        self.storage.commit(epoch)
        return epoch

    def close(self) -> None:
        self._open.close()


def content_of(meta_store, objects) -> tuple[Epoch, dict[bytes, bytes]]:
    """The committed epoch of a store and its rows, as a reader sees them."""
    with closing(HummockManager(meta_store, objects)) as manager, closing(
            HummockStorage(manager, objects, StorageOptions(), committed_only=True)) as storage:
        epoch = storage.committed_epoch
        return epoch, dict(storage.scan(hummock.KeyRange(), epoch))
