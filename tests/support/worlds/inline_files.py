"""Real inline files, made by a store in memory."""

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.sstable.info import SstableInfo


def inline_info(rows: WriteBatch, epoch: int) -> SstableInfo:
    """The record of the one inline file with these rows at this epoch."""
    with hummock.open("memory://", compaction=False) as store:
        store.ingest_batch(rows, Epoch(epoch))
        store.commit(Epoch(epoch))
        info, = store.version.sstables
        return info
