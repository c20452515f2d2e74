"""StagingStore against a dictionary: reads over committed and staged rows, loads that enter late, or never."""

import random

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import SPILL_BITS, Epoch, committed_epoch_of, own_epoch
from hummock.errors import InvalidEpoch, StoreClosed
from hummock.loaded_files import LoadedFiles
from hummock.store.staging_store import StagingStore
from tests.support.drivers.seeds import run_seed

TABLES = (3, 4)


def epoch_of(number):
    return Epoch(number << SPILL_BITS)


def random_rows(rng):
    keys = {user_key(rng.choice(TABLES), rng.randrange(3), bytes([rng.randrange(60)])) for _ in range(30)}
    return {key: None if rng.random() < 0.3 else rng.randbytes(12) for key in sorted(keys)}


def shown(store, epoch):
    with store.scan(KeyRange(b"", None), epoch) as scan:
        return dict(scan)


def check(store, epoch, model, rng):
    assert shown(store, epoch) == model
    keys = [user_key(rng.choice(TABLES), rng.randrange(3), bytes([rng.randrange(60)])) for _ in range(20)]
    assert [store.get(key, epoch) for key in keys] == [model.get(key) for key in keys]
    assert list(store.get_many(pa.array(keys, pa.binary()), epoch)) == [model.get(key) for key in keys]


class Apart:
    """A writer with epochs of its own; the store commits its loads, and rows of another table, at any time."""

    def __init__(self, base, rng):
        self.base, self.rng, self.number = base, rng, 0
        self.staging = StagingStore(base)
        self.staged, self.committed = {}, {}
        self.waiting: list[tuple[int, tuple, dict]] = []  # synced pieces: own epoch, files, the rows then

    def write(self):
        """A piece: two batches of one own epoch, the second partly over the first; then it is synced."""
        self.number += 1
        own = own_epoch(epoch_of(self.number))
        for _ in range(2):
            rows = random_rows(self.rng)
            self.staging.ingest_batch(WriteBatch(rows.items()), own)
            self.staged |= rows
            self.staged = {key: value for key, value in self.staged.items() if value is not None}
            check(self.staging, own, self.staged, self.rng)
        self.staging.seal_epoch(own)
        with pytest.raises(InvalidEpoch):
            self.staging.ingest_batch(WriteBatch([(b"a", b"b")]), own)
        synced = self.staging.sync(own)
        assert not self.staging.sync(own).sstables
        self.waiting.append((own, synced.sstables, dict(self.staged)))

    def commit(self, number):
        """The oldest piece enters as a load."""
        own, files, rows = self.waiting.pop(0)
        self.base.commit(epoch_of(number), loads=[LoadedFiles(f"piece-{number}", files)])
        self.staging.settle(own)
        self.committed = rows
        assert self.staging.committed_epoch == own and shown(self.base, epoch_of(number)) == rows

    def discard(self):
        """What is not committed is forgotten, and written again otherwise."""
        self.staging.clear_uncommitted()
        self.waiting, self.staged = [], dict(self.committed)
        self.number = committed_epoch_of(self.staging.committed_epoch) >> SPILL_BITS
        assert self.staging.staged_bytes == 0


@pytest.mark.parametrize("shape", ["one file", "tiny files"])
def test_reads_see_committed_and_staged_rows_and_loads_hold_exactly_the_pieces(shape):
    rng = random.Random(run_seed())
    options = {} if shape == "one file" else {"sstable_bytes": 400, "block_bytes": 64}
    with hummock.open("memory://", **options) as base:
        apart = Apart(base, rng)
        committed = 0
        for step in range(60):
            action = rng.choice(("write", "write", "commit", "discard" if step % 7 == 0 else "write"))
            if action == "write" and len(apart.waiting) < 3:
                apart.write()
            elif action == "discard":
                apart.discard()
            elif apart.waiting:
                committed += 1
                apart.commit(committed)
            check(apart.staging, own_epoch(epoch_of(apart.number + 1)), apart.staged, rng)
        assert committed > 5
        apart.staging.close()
        assert shown(base, epoch_of(committed)) == apart.committed


def test_pieces_that_are_sealed_alone_enter_with_the_next_one():
    with hummock.open("memory://") as base, StagingStore(base) as staging:
        first, second = own_epoch(epoch_of(1)), own_epoch(epoch_of(2))
        key = user_key(3, 0, b"k")
        staging.ingest_batch(WriteBatch([(key, b"old")]), first)
        staging.seal_epoch(first)
        staging.ingest_batch(WriteBatch([(key, b"new")]), second)
        staging.seal_epoch(second)
        files = staging.sync(second).sstables
        assert sum(info.rows for info in files) == 1
        base.commit(epoch_of(1), loads=[LoadedFiles("both", files)])
        staging.settle(second)
        assert shown(base, epoch_of(1)) == shown(staging, second) == {key: b"new"}


def test_misuse_is_refused():
    with hummock.open("memory://") as base:
        staging = StagingStore(base)
        with pytest.raises(InvalidEpoch, match="load"):
            staging.commit(own_epoch(epoch_of(1)))
        with pytest.raises(InvalidEpoch, match="watermark"):
            staging.advance_watermark(3, KeyWatermark(own_epoch(epoch_of(1)), ((0, 0, b"a"),)))
        staging.close()
        with pytest.raises(StoreClosed):
            staging.get(b"a", own_epoch(epoch_of(1)))
