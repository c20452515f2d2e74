"""Sizes of tables from the indexes of files that several tables share."""

import random

import hummock
from hummock.base.key import user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from tests.support.drivers.seeds import run_seed


def test_bytes_of_tables():
    rng, rows = random.Random(run_seed()), {1: 300, 2: 3_000, 7: 30}
    with hummock.open("memory://", block_bytes=4_096) as store:
        store.ingest_batch(
            WriteBatch(
                [
                    (user_key(table_id, 0, number.to_bytes(4, "big")), rng.randbytes(100))
                    for table_id, count in rows.items()
                    for number in range(count)
                ]
            ),
            Epoch(1 << 16),
        )
        store.commit(Epoch(1 << 16))
        sizes = store.table_bytes([1, 2, 3, 7])
        entries = store.table_entries([1, 2, 3, 7])
        files = sum(info.data_bytes for info in store.version.sstables)
    assert sizes[3] == 0
    for table_id, count in rows.items():
        assert 100 * count <= sizes[table_id] <= 120 * count + 2 * 4_500, (table_id, sizes)
        assert 0.8 * count - 40 <= entries[table_id] <= 1.2 * count + 90, (table_id, entries)
    assert entries[3] == 0
    assert files <= sum(sizes.values()) <= files + 4 * 4_500
