"""A world for random programs over state tables: every step does the same to the tables and to a dict, or reads both.

One to three tables share the rows by vnode and sometimes exchange vnodes; a follower in another process replicates
their writes. Rows are (a, b, c | d, e): key | value.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from hummock.epoch import EpochGenerator, EpochPair
from relational.catalog.objects import ColumnCatalog, RowFormat, TableCatalog, TableKind, value_columns
from relational.chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.table.column_cache import ColumnCache
from relational.table.state_table import OpChecks, StateTable
from relational.types import DataType, OrderType, SortKey, VnodeRule
from tests.model.store_processes import refused
from tests.model.table_stores import FileBackend, MemoryBackend

TABLE_ID = 3
TYPES = {"a": "int", "b": "varchar", "c": "bigint", "d": "varchar", "e": "numeric(9, 2)[]"}
CHECKS = (OpChecks(), OpChecks(reads_store=True), OpChecks(reads_store=True, raises=False))
SPILLS = (0, 500, 64 << 20)
CACHES = (0, 600, 2_000, 1 << 20)
Pk = tuple
Change = tuple[Op, tuple]


def random_catalog(rng: random.Random) -> TableCatalog:
    """Key (a, b, c) in any sort orders; distributed by any part of it, `c` also as if it were a row id."""
    columns = tuple(
        ColumnCatalog(name, index, DataType.parse(text)) for index, (name, text) in enumerate(TYPES.items())
    )
    orders = [OrderType(rng.random() < 0.5, rng.choice([None, True, False])) for _ in range(3)]
    pk = tuple(SortKey(index, order) for index, order in enumerate(orders))
    distribution = rng.choice([(), (0,), (1,), (0, 1), (2,), (0, 1, 2)])
    rule = rng.choice([VnodeRule.HASH, VnodeRule.ROW_ID]) if distribution == (2,) else VnodeRule.HASH
    return TableCatalog(
        TABLE_ID, "t", TableKind.INTERNAL, columns, pk, (0, 1, 2), distribution, value_columns(columns, pk),
        rng.choice([1, 3, 16]), row_format=rng.choice(list(RowFormat)), vnode_rule=rule,
    )


def random_pk(rng: random.Random) -> Pk:
    return (
        rng.choice([None, *range(4)]),
        rng.choice([None, "", "a", "ab", "abcdefgh", "abcdefghi"]),
        rng.choice([None, -1, 0, 1, 1 << 40]),
    )


def random_rest(rng: random.Random) -> tuple:
    amounts = [None, None, [], [None], [Decimal("1.00"), Decimal("-2.50")]]
    return rng.choice([None, "", "x", "value " * 9]), rng.choice(amounts)


class OpenScan:
    """An unfinished scan; `expected` are the rows that it has not returned yet."""

    def __init__(self, rows: Iterator[tuple], expected: list[tuple]):
        self.rows, self.expected = rows, expected


class TablesAndModel:
    """The tables and the dict; each step of a program is a method of a subclass, without arguments."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.catalog = random_catalog(self.rng)
        self.schema = self.catalog.schema
        self.backend = FileBackend(self.rng) if self.rng.random() < 0.6 else MemoryBackend()
        self.checks = self.rng.choice(CHECKS)
        self.options = {"checks": self.checks, "spill_bytes": self.rng.choice(SPILLS),
                        "row_cache_bytes": self.rng.choice(CACHES)}
        self.columns = ColumnCache(self.rng.choice((0, 3_000, 1 << 20)))
        clock = iter(range(1_700_000_000_000, 1_800_000_000_000))
        self.next_epoch = EpochGenerator(lambda: next(clock)).next
        first = self.next_epoch()
        self.epoch = EpochPair(curr=self.next_epoch(), prev=first)
        self.rows: dict[Pk, tuple] = {}
        self.history: dict[int, dict[Pk, tuple]] = {}       # by checkpoint
        self.low: int | None = None                         # rows with a smaller `a` are no longer written
        self.committed_low: int | None = None
        self.follower: StateTable | None = None
        self.follower_store = self.backend.follower() if isinstance(self.backend, FileBackend) and (
            self.rng.random() < 0.3) else None
        self.open(self.rng.randint(1, min(3, self.catalog.vnode_count)))

    # -- instances and vnodes ------------------------------------------------------------------------------

    def open(self, instances: int) -> None:
        self.owners = self.random_owners(instances)
        self.tables = [self.table(self.owners == i) for i in range(instances)]
        self.open_scans: list[OpenScan] = []
        if self.follower_store is not None:
            self.follower = StateTable(self.catalog, self.follower_store, is_replicated=True)
            self.follower.init_epoch(self.epoch)

    def table(self, owned: np.ndarray) -> StateTable:
        table = StateTable(self.catalog, self.backend.store, None if owned.all() else owned, **self.options)
        table.init_epoch(self.epoch)
        return table

    def random_owners(self, instances: int) -> np.ndarray:
        """The instance of each vnode; every instance has at least one vnode."""
        count = self.catalog.vnode_count
        owners = [*range(instances), *self.rng.choices(range(instances), k=count - instances)]
        return np.array(self.rng.sample(owners, count))

    def owner_of(self, pk: Pk) -> int:
        """The instance that owns a row, or all rows under a prefix that fixes the vnode."""
        columns = self.tables[0].serde.prefix_columns(pk)
        key = [columns[index] for index in self.tables[0].serde.distribution_in_pk]
        return int(self.owners[self.tables[0].serde.vnodes_of(key, 1)[0]])

    # -- the dict ------------------------------------------------------------------------------------------

    def key(self, pk: Pk) -> bytes:
        return self.tables[0].serde.key_encoder.encode_row(pk)

    def of(self, instance: int) -> dict[Pk, tuple]:
        """The rows of one table."""
        if len(self.tables) == 1:
            return self.rows
        return {pk: rest for pk, rest in self.rows.items() if self.owner_of(pk) == instance}

    def ordered(self, rows: dict[Pk, tuple], prefix: Pk = ()) -> list[tuple]:
        found = [pk for pk in rows if pk[: len(prefix)] == prefix]
        return [(*pk, *rows[pk]) for pk in sorted(found, key=self.key)]

    def is_passed(self, pk: Pk) -> bool:
        return self.low is not None and pk[0] is not None and pk[0] < self.low

    def some(self) -> tuple[int, StateTable]:
        instance = self.rng.randrange(len(self.tables))
        return instance, self.tables[instance]

    def pks_of(self, instance: int, most: int) -> list[Pk]:
        pks = (random_pk(self.rng) for _ in range(self.rng.randrange(1, most)))
        return [pk for pk in pks if self.owner_of(pk) == instance]

    def prefix_of(self, instance: int, width: int) -> Pk | None:
        """A random prefix, or None if it fixes a vnode of another instance."""
        prefix = random_pk(self.rng)[:width]
        serde = self.tables[instance].serde
        return None if serde.covers_distribution(width) and self.owner_of(prefix) != instance else prefix


class Writes(TablesAndModel):
    def write(self) -> None:
        """Writes a chunk with some rows hidden, or the same changes one by one."""
        instance, table = self.some()
        changes = self.changes(instance)
        if not changes:
            return
        if self.rng.random() < 0.3:
            self.one_by_one(table, changes)
        else:
            hidden = [(Op.INSERT, (*random_pk(self.rng), None, None)) for _ in range(self.rng.randrange(3))]
            chunk = StreamChunk.from_rows(self.schema, [*changes, *hidden])
            shown = np.arange(chunk.capacity) < len(changes)
            table.write_chunk(chunk.with_visibility(shown.astype(np.uint8)))
        self.follow(changes)

    def write_slice(self) -> None:
        """Writes a chunk that has each key once, past the mem table's index unless it is in use."""
        instance, table = self.some()
        changes: list[Change] = []
        for pk in dict.fromkeys(self.pks_of(instance, 12)):
            rest = random_rest(self.rng)
            if pk in self.rows and self.rng.random() < 0.4:
                changes.append((Op.DELETE, (*pk, *self.rows.pop(pk))))
            elif not self.is_passed(pk):
                before = self.rows.get(pk)
                if before is not None and self.rng.random() < 0.5:
                    changes.append((Op.UPDATE_DELETE, (*pk, *before)))
                changes.append((Op.INSERT if before is None else Op.UPDATE_INSERT, (*pk, *rest)))
                self.rows[pk] = rest
        if changes:
            table.write_slice(StreamChunk.from_rows(self.schema, changes))
            self.follow(changes)

    def changes(self, instance: int) -> list[Change]:
        """Random changes, already applied to the dict."""
        changes: list[Change] = []
        for pk in self.pks_of(instance, 12):
            rest, kind = random_rest(self.rng), self.rng.random()
            if kind < 0.1 and not self.is_passed(pk):
                changes.append((Op.UPDATE_INSERT, (*pk, *rest)))
                self.rows[pk] = rest
            elif pk not in self.rows:
                if not self.is_passed(pk):
                    changes.append((Op.INSERT, (*pk, *rest)))
                    self.rows[pk] = rest
            elif kind < 0.5:
                changes.append((Op.DELETE, (*pk, *self.rows.pop(pk))))
            else:
                changes += self.update(instance, pk, rest)
        return changes

    def update(self, instance: int, pk: Pk, rest: tuple) -> list[Change]:
        """Changes some of the values, or the key too."""
        before = self.rows.pop(pk)
        rest = self.rng.choice([rest, (rest[0], before[1]), (before[0], rest[1]), before])
        new_pk = random_pk(self.rng)
        is_free = new_pk not in self.rows and not self.is_passed(new_pk) and self.owner_of(new_pk) == instance
        new_pk = new_pk if is_free and self.rng.random() < 0.4 else pk
        self.rows[new_pk] = rest
        return [(Op.UPDATE_DELETE, (*pk, *before)), (Op.UPDATE_INSERT, (*new_pk, *rest))]

    def one_by_one(self, table: StateTable, changes: list[Change]) -> None:
        for index, (op, row) in enumerate(changes):
            is_half = index > 0 and changes[index - 1][0] is Op.UPDATE_DELETE
            if op is Op.INSERT:
                table.insert_row(row)
            elif op is Op.DELETE:
                table.delete_row(row)
            elif op is Op.UPDATE_DELETE:
                table.update_row(row, changes[index + 1][1])
            elif not is_half:
                table.write_chunk(StreamChunk.from_rows(self.schema, [(op, row)]))

    def follow(self, changes: list[Change]) -> None:
        if self.follower is not None:
            self.follower.write_chunk(StreamChunk.from_rows(self.schema, changes))

    def contradict(self) -> None:
        """A table that reads the store refuses changes that contradict it, or applies them as they are."""
        instance, table = self.some()
        for pk in self.pks_of(instance, 4) if self.checks.reads_store else ():
            rest, is_there = random_rest(self.rng), pk in self.rows
            if self.is_passed(pk):
                continue
            update = [(Op.UPDATE_DELETE, (*pk, *rest)), (Op.UPDATE_INSERT, (*pk, *rest))]
            delete = [(Op.DELETE, (*pk, *rest))]
            changes = [(Op.INSERT, (*pk, *rest))] if is_there else self.rng.choice([update, delete])
            chunk = StreamChunk.from_rows(self.schema, changes)
            if self.checks.raises:
                with refused(ConsistencyError):
                    table.write_chunk(chunk)
                continue
            table.write_chunk(chunk)
            if changes is not delete:
                self.rows[pk] = rest
                self.follow([(Op.UPDATE_INSERT, (*pk, *rest))])

    # -- epochs --------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """A barrier, mostly a checkpoint; vnodes may move right after it."""
        self.epoch = EpochPair(curr=self.next_epoch(), prev=self.epoch.curr)
        if self.options["spill_bytes"] < 1 << 20:
            self.open_scans.clear()
        for table in self.tables:
            table.commit(self.epoch)
        if self.follower is not None:
            self.follower.commit(self.epoch)
        if self.rng.random() < 0.7:
            self.checkpoint()
        if self.rng.random() < 0.3:
            self.move_vnodes()

    def checkpoint(self) -> None:
        epoch = self.epoch.prev
        self.backend.checkpoint(epoch)
        if self.backend.has_registered(TABLE_ID, epoch):
            self.committed_low = self.low
            self.rows = {pk: rest for pk, rest in self.rows.items()
                         if self.committed_low is None or pk[0] is None or pk[0] >= self.committed_low}
        self.history[epoch] = dict(self.rows)
        if self.follower_store is not None:
            self.follower_store.wait_epoch(epoch)

    def move_vnodes(self) -> None:
        self.owners = self.random_owners(len(self.tables))
        for instance, table in enumerate(self.tables):
            owned = self.owners == instance
            table.update_vnodes(None if owned.all() else owned)

    def raise_watermark(self) -> None:
        """Raises the watermark of every instance, in the epoch that the next barrier ends."""
        if not self.backend.has_rules or not self.catalog.pk[0].order.nulls_are_largest:
            return
        self.low = self.rng.randrange(self.low or 0, 4)
        for table in self.tables:
            table.update_watermark(self.low)
            if self.rng.random() < 0.2:
                table.update_watermark(self.rng.randrange(self.low + 1))

    def restart(self) -> None:
        """Restarts with the rows of the last checkpoint."""
        self.open_scans.clear()
        self.backend.restart()
        if isinstance(self.backend, FileBackend) and self.follower_store is not None:
            self.follower_store.close()
            self.follower_store = self.backend.follower()
        committed = self.backend.store.committed_epoch
        self.rows = dict(self.history.get(committed, {}))
        self.low = self.committed_low
        prev = committed or self.next_epoch()
        self.epoch = EpochPair(curr=self.next_epoch(), prev=prev)
        self.open(self.rng.randint(1, min(3, self.catalog.vnode_count)))

    def compact(self) -> None:
        self.backend.compact()

    def close(self) -> None:
        self.backend.close()
        if self.follower_store is not None:
            self.follower_store.close()

    def __repr__(self) -> str:
        layout = f"{self.catalog.row_format} of {self.catalog.vnode_count} vnodes"
        return f"{layout}, {type(self.backend).__name__}, {self.options}"
