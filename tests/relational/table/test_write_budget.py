"""The writes of several state tables under one limit: the larger ones spill, and nothing is lost."""

import gc

import pyarrow as pa

from hummock.epoch import Epoch, EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import DataChunk, StreamChunk
from relational.table.state_table import StateTable
from relational.table.write_budget import WriteBudget
from relational.types import Schema
from tests.support.drivers.catalogs import table_catalog

SCHEMA = Schema.of(id="bigint", v="varchar")


class Owner:
    pass


def test_tables_of_at_least_the_average_spill_when_all_have_too_much():
    budget, large, small = WriteBudget(100), Owner(), Owner()
    assert not budget.exceeded_by(large, 90)
    assert not budget.exceeded_by(small, 10)
    assert not budget.exceeded_by(small, 20)
    assert budget.exceeded_by(large, 95)
    assert budget.used_bytes == 115
    assert not budget.exceeded_by(large, 0) and budget.used_bytes == 20
    assert not budget.exceeded_by(small, 100) and budget.exceeded_by(small, 101)


def test_a_table_that_is_gone_uses_nothing():
    budget, table = WriteBudget(100), Owner()
    budget.exceeded_by(table, 90)
    del table
    gc.collect()
    assert budget.used_bytes == 0


def test_state_tables_spill_before_the_barrier_and_read_what_they_wrote():
    store, budget = MemoryStateStore(), WriteBudget(1 << 20)
    tables = [StateTable(table_catalog(f"t{number}", SCHEMA, (0,), table_id=10 + number), store, budget=budget)
              for number in range(4)]
    epoch = EpochPair(Epoch(1 << 16), Epoch(0))
    for table in tables:
        table.init_epoch(epoch)
    for part in range(40):
        for number, table in enumerate(tables):
            if number == 0 and part % 10:
                continue                                    # this table stays small
            ids = range(1_000 * part, 1_000 * part + 200)
            rows = pa.table({"id": ids, "v": [f"{each:050}" for each in ids]})
            table.write_chunk(StreamChunk.inserts(DataChunk.from_arrow(rows)))
            assert budget.used_bytes < 2 << 20
    small, *large = [table._has_spilled for table in tables]
    assert not small and all(large)
    for number, table in enumerate(tables):
        assert len(list(table.scan())) == 200 * (4 if number == 0 else 40)
        table.commit(EpochPair(Epoch(2 << 16), Epoch(1 << 16)))
    assert budget.used_bytes == 0
