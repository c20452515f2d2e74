"""Random programs: a table of generated keys that is append-only returns what an ordinary table of the same rows does.

Its rows go past the mem table's index, and its vnodes follow from the bits of its ids; the other table hashes them and
folds every row. Both get the same chunks, are read within the epoch, spilled, committed, and lose what a crash loses.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from hummock.epoch import SPILL_BITS, EpochGenerator, EpochPair
from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk, RowIdGenerator, StreamChunk
from relational.table import state_table
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import Schema, VnodeRule
from tests.model.table_stores import FileBackend
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import amount, run_seed

SCHEMA = Schema.of(v="bigint", text="varchar", _row_id="bigint")
PROGRAMS, STEPS_EACH = amount(2, 8), 40


class Twin:
    """One of the two tables, over a store of its own."""

    def __init__(self, catalog: TableCatalog, seed: int, epoch: EpochPair, spill_bytes: int) -> None:
        self.catalog, self.spill_bytes = catalog, spill_bytes
        self.backend = FileBackend(random.Random(seed))
        self.open(epoch)

    def open(self, epoch: EpochPair) -> None:
        self.table = StateTable(self.catalog, self.backend.store, spill_bytes=self.spill_bytes)
        self.table.init_epoch(epoch)

    def committed(self, epoch: int) -> list[tuple]:
        chunks = StorageTable(self.catalog, self.backend.store).scan(epoch)
        return sorted((row for chunk in chunks for row in chunk.rows()), key=lambda row: row[2])


class Program:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        vnode_count = self.rng.choice([1, 7, 256, 2_000])
        clock = iter(range(1_700_000_000_000, 1_800_000_000_000))
        self.next_epoch = EpochGenerator(lambda: next(clock)).next
        first = self.next_epoch()
        self.epoch = EpochPair(curr=self.next_epoch(), prev=first)
        ordinary = table_catalog("t", SCHEMA, (2,), row_id_index=2, vnode_count=vnode_count)
        rule = VnodeRule.of_row_ids(vnode_count)
        catalogs = (replace(ordinary, is_append_only=True, vnode_rule=rule), ordinary)
        assert catalogs[0].inserts_new_keys and not catalogs[1].inserts_new_keys
        spill_bytes = self.rng.choice([0, 3_000, 64 << 20])
        self.twins = [Twin(catalog, seed, self.epoch, spill_bytes) for catalog in catalogs]
        halves = np.array_split(np.array(self.rng.sample(range(vnode_count), vnode_count)), min(vnode_count, 2))
        self.generators = [RowIdGenerator(half, rule) for half in halves]
        self.ids: list[int] = []
        self.committed_ids: list[int] = []
        self.committed_epoch: int | None = None

    def write(self) -> None:
        rows = self.rng.choice([1, 1, 3, 200, 700])
        ids = self.rng.choice(self.generators).next_ids(rows)
        if self.rng.random() < 0.2:
            self.rng.shuffle(ids)
        texts = [None if self.rng.random() < 0.1 else "x" * self.rng.randrange(20) for _ in range(rows)]
        columns = [pa.array(ids * 3), pa.array(texts, pa.string()), pa.array(ids)]
        for twin in self.twins:
            twin.table.write_chunk(StreamChunk(columns, np.zeros(rows, np.uint8)))
        self.ids += ids.tolist()

    def read_points(self) -> None:
        wanted = [*self.rng.sample(self.ids, min(len(self.ids), 5)), 0, -1, 1 << 40, None]
        asked = DataChunk([pa.array(wanted, pa.int64())])
        (rows, found), expected = (twin.table.get_rows(asked) for twin in self.twins)
        assert found.tolist() == expected[1].tolist() and list(rows.rows()) == list(expected[0].rows())
        owners, first = zip(*(twin.table.first_rows(asked) for twin in self.twins), strict=True)
        assert owners[0].tolist() == owners[1].tolist() and list(first[0].rows()) == list(first[1].rows())

    def read_all(self) -> None:
        for is_reverse in (False, True):
            limit = self.rng.choice([None, 5])
            mine, other = (list(twin.table.scan(reverse=is_reverse, limit=limit)) for twin in self.twins)
            assert mine == other
        chunks = [row[2] for chunk in self.twins[0].table.scan_chunks() for row in chunk.rows()]
        assert sorted(chunks) == sorted(self.ids)

    def commit(self) -> None:
        self.epoch = EpochPair(curr=self.next_epoch(), prev=self.epoch.curr)
        for twin in self.twins:
            twin.table.commit(self.epoch)
        for generator in self.generators:
            generator.open_epoch(self.epoch.curr >> SPILL_BITS)
        if self.rng.random() < 0.6:
            for twin in self.twins:
                twin.backend.checkpoint(self.epoch.prev)
            self.committed_ids, self.committed_epoch = list(self.ids), self.epoch.prev
            self.read_committed()

    def read_committed(self) -> None:
        if self.committed_epoch is not None:
            mine, other = (twin.committed(self.committed_epoch) for twin in self.twins)
            assert mine == other and [row[2] for row in mine] == sorted(self.committed_ids)

    def crash(self) -> None:
        """Uncommitted rows are lost, by a new process or by `clear_uncommitted`."""
        is_restart = self.rng.random() < 0.5
        prev = self.committed_epoch or self.next_epoch()
        self.epoch = EpochPair(curr=self.next_epoch(), prev=prev)
        for twin in self.twins:
            if is_restart:
                twin.backend.restart()
            else:
                twin.backend.store.clear_uncommitted()
            twin.open(self.epoch)
        self.ids = list(self.committed_ids)

    def compact(self) -> None:
        for twin in self.twins:
            twin.backend.compact()


STEPS = {Program.write: 10, Program.read_points: 2, Program.read_all: 1, Program.commit: 4, Program.crash: 0.7,
         Program.compact: 1, Program.read_committed: 1}


@pytest.mark.parametrize("part", range(2))
def test_an_append_only_table_returns_what_an_ordinary_one_does(part, monkeypatch):
    monkeypatch.setattr(state_table, "SLICE_BYTES", 20_000)
    for number in range(part, PROGRAMS, 2):
        seed = run_seed() + number
        program, done = Program(seed), []
        try:
            for step in random.Random(seed).choices(list(STEPS), list(STEPS.values()), k=STEPS_EACH):
                done.append(step.__name__)
                step(program)
            program.commit()
            program.read_all()
        except Exception as error:
            error.add_note(f"program {number}: {' '.join(done)}")
            raise
        finally:
            for twin in program.twins:
                twin.backend.close()
