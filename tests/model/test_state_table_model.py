"""StateTable against a plain dict, in random programs of writes, reads, commits and reopenings.

Each program is made from its seed alone; a failure prints it (it is the test's parameter).
"""

import random

import numpy as np
import pytest

from hummock.epoch import EpochGenerator, EpochPair
from hummock.memory_store import MemoryStateStore
from relational.catalog.objects import ColumnCatalog, RowFormat, TableCatalog, TableKind
from relational.chunk import DataChunk, Op, StreamChunk
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import DataType, OrderType, Schema, SortKey

TYPES = {"a": "int", "b": "varchar", "c": "bigint", "d": "varchar"}
TABLE_ID = 3


def random_catalog(rng):
    """Key (a, b, c) in any orders; distributed by any part of it; `d` is what the rows hold."""
    columns = tuple(
        ColumnCatalog(name, index, DataType.parse(text)) for index, (name, text) in enumerate(TYPES.items())
    )
    orders = [OrderType(rng.random() < 0.5, rng.choice([None, True, False])) for _ in range(3)]
    order = [SortKey(index, order) for index, order in enumerate(orders)]
    distribution = rng.choice([(), (0,), (1,), (0, 1), (2,), (0, 1, 2)])
    vnode_count = rng.choice([1, 3, 16])
    return TableCatalog(
        TABLE_ID, "t", TableKind.INTERNAL, columns, tuple(order), (0, 1, 2), distribution, (3,), vnode_count,
        row_format=rng.choice(list(RowFormat)),
    )


def random_pk(rng):
    return (
        rng.choice([None, *range(4)]),
        rng.choice([None, "", "a", "ab", "abcdefgh", "abcdefghi"]),
        rng.choice([None, -1, 0, 1, 1 << 40]),
    )


class Program:
    """One table, its model, and what happens to both."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.catalog = random_catalog(self.rng)
        self.schema = self.catalog.schema
        self.store = MemoryStateStore()
        clock = iter(range(1_700_000_000_000, 1_800_000_000_000))
        self.next_epoch = EpochGenerator(lambda: next(clock)).next
        first = self.next_epoch()
        self.epoch = EpochPair(curr=self.next_epoch(), prev=first)
        self.rows, self.committed = {}, {}
        self.open()

    def open(self):
        self.table = StateTable(self.catalog, self.store)
        self.table.init_epoch(self.epoch)

    def key(self, pk):
        return self.table.serde.key_encoder.encode_row(pk)

    def ordered(self, prefix=()):
        """The model's rows under a prefix, in key order."""
        found = [pk for pk in self.rows if pk[: len(prefix)] == prefix]
        return [(*pk, self.rows[pk]) for pk in sorted(found, key=self.key)]

    def write(self):
        changes = []
        for _ in range(self.rng.randrange(1, 12)):
            pk, value = random_pk(self.rng), self.rng.choice([None, "", "x", "value " * 9])
            if pk not in self.rows:
                changes.append((Op.INSERT, (*pk, value)))
                self.rows[pk] = value
            elif self.rng.random() < 0.5:
                changes.append((Op.DELETE, (*pk, self.rows.pop(pk))))
            else:
                changes += self.update(pk, value)
        if self.rng.random() < 0.3:
            self.write_one_by_one(changes)
        else:
            self.table.write_chunk(StreamChunk.from_rows(self.schema, changes))

    def update(self, pk, value):
        old, new_pk = (*pk, self.rows.pop(pk)), random_pk(self.rng)
        new_pk = pk if new_pk in self.rows or self.rng.random() < 0.6 else new_pk
        self.rows[new_pk] = value
        return [(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, (*new_pk, value))]

    def write_one_by_one(self, changes):
        for index, (op, row) in enumerate(changes):
            if op is Op.INSERT:
                self.table.insert_row(row)
            elif op is Op.DELETE:
                self.table.delete_row(row)
            elif op is Op.UPDATE_DELETE:
                self.table.update_row(row, changes[index + 1][1])

    def read_points(self):
        pks = [random_pk(self.rng) for _ in range(self.rng.randrange(1, 9))]
        rows, found = self.table.get_rows(self.table.serde.pk_chunk(pks))
        assert found.tolist() == [pk in self.rows for pk in pks]
        assert list(rows.rows()) == [(*pk, self.rows.get(pk)) for pk in pks]
        expected = (*pks[0], self.rows[pks[0]]) if pks[0] in self.rows else None
        assert self.table.get_row(pks[0]) == expected

    def read_scan(self):
        prefix = random_pk(self.rng)[: self.rng.randrange(4)]
        expected = self.ordered(prefix)
        limit = self.rng.choice([None, 0, 1, 3])
        assert list(self.table.scan(prefix, limit=limit)) == expected[:limit]
        assert list(self.table.scan(prefix, reverse=True, limit=limit)) == expected[::-1][:limit]
        chunks = [row for chunk in self.table.scan_chunks(prefix) for row in chunk.rows()]
        assert sorted(map(repr, chunks)) == sorted(map(repr, expected))

    def read_first(self):
        width = self.rng.randrange(4)
        prefixes = [random_pk(self.rng)[:width] for _ in range(self.rng.randrange(5))]
        limit = self.rng.randrange(4)
        chunk = self.table.serde.pk_chunk(prefixes, width)
        if width == 0:
            chunk = DataChunk([], capacity=len(prefixes))
        owners, rows = self.table.first_rows(chunk, limit)
        expected = [(at, row) for at, prefix in enumerate(prefixes) for row in self.ordered(prefix)[:limit]]
        assert list(zip(owners.tolist(), rows.rows(), strict=True)) == expected

    def commit(self):
        self.epoch = EpochPair(curr=self.next_epoch(), prev=self.epoch.curr)
        self.table.commit(self.epoch)
        self.committed = dict(self.rows)
        self.store.commit(self.epoch.prev)
        self.read_committed()

    def read_committed(self):
        order = self.rng.sample(range(4), self.rng.randrange(1, 5))
        storage = StorageTable(self.catalog, self.store, order)
        rows = [row for chunk in storage.scan(self.epoch.prev, ordered=True) for row in chunk.rows()]
        assert rows == [tuple(row[column] for column in order) for row in self.ordered()]
        assert storage.to_arrow(self.epoch.prev).num_rows == len(rows)

    def reopen(self):
        """What a crash leaves: the committed rows."""
        self.rows = dict(self.committed)
        self.store.clear_uncommitted()
        self.open()

    def run(self, steps):
        reads = [self.read_points, self.read_scan, self.read_first]
        actions = [self.write] * 5 + reads + [self.commit, self.reopen]
        for _ in range(steps):
            self.rng.choice(actions)()
        self.read_scan()


@pytest.mark.parametrize("seed", range(300))
def test_program(seed):
    Program(seed).run(25)


@pytest.mark.parametrize("seed", range(20))
def test_many_rows(seed):
    """More rows than a merge holds of a range, in one vnode and in sixteen."""
    rng = random.Random(seed)
    program = Program(seed)
    schema = Schema.of(a="int", b="varchar", c="bigint", d="varchar")
    for _ in range(3):
        fresh = {(rng.randrange(3), "k", rng.randrange(100_000)) for _ in range(3_000)} - program.rows.keys()
        chunk = StreamChunk.from_rows(schema, [(Op.INSERT, (*pk, "v")) for pk in fresh])
        program.table.write_chunk(chunk.with_visibility(np.ones(chunk.capacity, np.uint8)))
        program.rows.update(dict.fromkeys(fresh, "v"))
        program.read_scan()
        program.commit()
    assert list(program.table.scan()) == program.ordered()
    assert list(program.table.scan(reverse=True, limit=2_000)) == program.ordered()[::-1][:2_000]
