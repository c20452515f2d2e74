"""The reading steps of random programs over state tables, compared with a dict."""

from __future__ import annotations

from collections.abc import Callable

from hummock.errors import EpochTooOld
from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import ConsistencyError
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types.key_set import RowRange
from tests.model.store_processes import refused
from tests.model.table_world import TYPES, OpenScan, Pk, Writes, random_pk

LIMITS = (None, 0, 1, 3)


class World(Writes):
    """Each step reads one table, or the follower, which has the rows of all."""

    def some_reader(self) -> tuple[int, StateTable, dict[Pk, tuple]]:
        if self.follower is not None and self.rng.random() < 0.4:
            return -1, self.follower, self.rows
        instance, table = self.some()
        return instance, table, self.of(instance)

    def prefixes(self, instance: int, width: int) -> list[Pk]:
        drawn = [random_pk(self.rng)[:width] if instance < 0 else self.prefix_of(instance, width)
                 for _ in range(self.rng.randrange(6))]
        return [prefix for prefix in drawn if prefix is not None]

    def chunk_of(self, table: StateTable, prefixes: list[Pk], width: int) -> DataChunk:
        return table.serde.pk_chunk(prefixes, width) if width else DataChunk([], capacity=len(prefixes))

    # -- steps ---------------------------------------------------------------------------------------------

    def read_points(self) -> None:
        instance, table, rows = self.some_reader()
        pks = [random_pk(self.rng) for _ in range(self.rng.randrange(1, 9))]
        owned = pks if instance < 0 else [pk for pk in pks if self.owner_of(pk) == instance]
        if len(owned) < len(pks):
            with refused(ConsistencyError):
                table.get_rows(table.serde.pk_chunk(pks))
        if not owned:
            return
        found_rows, found = table.get_rows(table.serde.pk_chunk(owned))
        assert found.tolist() == [pk in rows for pk in owned]
        assert list(found_rows.rows()) == [(*pk, *rows.get(pk, (None, None))) for pk in owned]
        pk = owned[0]
        assert table.get_row(pk) == ((*pk, *rows[pk]) if pk in rows else None)

    def read_scan(self) -> None:
        instance, table, rows = self.some_reader()
        width = self.rng.randrange(4)
        foreign = random_pk(self.rng)[:width]
        if instance >= 0 and table.serde.covers_distribution(width) and self.owner_of(foreign) != instance:
            for scan in (table.scan, table.scan_chunks):
                with refused(ConsistencyError):
                    scan(foreign)
        for prefix in self.prefixes(instance, width)[:2]:
            expected = self.ordered(rows, prefix)
            limit = self.rng.choice(LIMITS)
            assert list(table.scan(prefix, limit=limit)) == expected[:limit]
            assert list(table.scan(prefix, reverse=True, limit=limit)) == expected[::-1][:limit]
            chunks = [row for chunk in table.scan_chunks(prefix) for row in chunk.rows()]
            assert sorted(map(repr, chunks)) == sorted(map(repr, expected))

    def read_under(self) -> None:
        """Reads all rows, and the first ones, under each of many prefixes."""
        instance, table, rows = self.some_reader()
        width = self.rng.randrange(4)
        prefixes = self.prefixes(instance, width)
        limit = self.rng.randrange(4)
        chunk = self.chunk_of(table, prefixes, width)
        owners, first = table.first_rows(chunk, limit)
        expected = [(at, row) for at, prefix in enumerate(prefixes) for row in self.ordered(rows, prefix)]
        expected_first = [(at, row) for at, prefix in enumerate(prefixes) for row in self.ordered(rows, prefix)[:limit]]
        assert list(zip(owners.tolist(), first.rows(), strict=True)) == expected_first
        found = [(at, row) for owned, part in table.rows_under(chunk)
                 for at, row in zip(owned.tolist(), part.rows(), strict=True)]
        assert [at for at, _ in found] == [at for at, _ in expected]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    def begin_scan(self) -> None:
        """The scan returns the rows of this moment, whatever is written meanwhile."""
        instance, table, rows = self.some_reader()
        for prefix in self.prefixes(instance, self.rng.randrange(3))[:1]:
            is_reverse = self.rng.random() < 0.5
            expected = self.ordered(rows, prefix)[:: -1 if is_reverse else 1]
            if instance >= 0:
                self.open_scans.append(OpenScan(table.scan(prefix, reverse=is_reverse), expected))

    def read_on(self) -> None:
        for scan in self.open_scans:
            for _ in range(self.rng.randrange(4)):
                row = next(scan.rows, None)
                assert row == (scan.expected.pop(0) if scan.expected else None)
        self.open_scans = [scan for scan in self.open_scans if scan.expected]

    def read_committed(self) -> None:
        """Reads chosen columns by a StorageTable at a checkpoint, the newest or any in the history."""
        if not self.history:
            return
        epoch = self.rng.choice([max(self.history), self.rng.choice(list(self.history))])
        rows = self.history[epoch]
        chosen = self.rng.sample(range(len(TYPES)), self.rng.randrange(1, len(TYPES) + 1))
        if epoch < self.backend.safe_epoch:
            with refused(EpochTooOld):
                list(StorageTable(self.catalog, self.backend.store, chosen).scan(epoch))
            return
        table = StorageTable(self.catalog, self.backend.store, chosen, cache=self.columns)
        self.check_committed(table, epoch, rows, lambda row: tuple(row[column] for column in chosen))

    def check_committed(
        self, table: StorageTable, epoch: int, rows: dict[Pk, tuple], cut: Callable[[tuple], tuple]
    ) -> None:
        prefix, limit = random_pk(self.rng)[: self.rng.randrange(3)], self.rng.choice(LIMITS)
        is_reverse = self.rng.random() < 0.5
        bounds, is_within = self.random_bounds(len(prefix))
        expected = [cut(row) for row in self.ordered(rows, prefix) if is_within(row)][:: -1 if is_reverse else 1]
        scan = table.scan(epoch, prefix, bounds, ordered=True, reverse=is_reverse, limit=limit)
        assert [row for chunk in scan for row in chunk.rows()] == expected[:limit]
        loose = [row for chunk in table.scan(epoch, prefix, bounds) for row in chunk.rows()]
        assert sorted(map(repr, loose)) == sorted(map(repr, expected))
        whole = sorted(map(repr, (cut(row) for row in self.ordered(rows))))
        scanned = [row for chunk in table.scan(epoch) for row in chunk.rows()]
        assert sorted(map(repr, scanned)) == whole
        parts = [row for part in table.partitions(3) for chunk in table.scan_partition(epoch, part)
                 for row in chunk.rows()]
        assert sorted(map(repr, parts)) == whole
        assert table.to_arrow(epoch, threads=self.rng.choice((1, 1, 2))).num_rows == len(whole)
        pk = random_pk(self.rng)
        assert table.get_row(pk, epoch) == (cut((*pk, *rows[pk])) if pk in rows else None)

    def read_changes(self) -> None:
        """The changes between two readable checkpoints are the difference of the two snapshots."""
        epochs = sorted(epoch for epoch in self.history if epoch >= self.backend.safe_epoch)
        if not epochs:
            return
        since, until = sorted((self.rng.choice(epochs), self.rng.choice(epochs)))
        chosen = self.rng.sample(range(len(TYPES)), self.rng.randrange(1, len(TYPES) + 1))
        before, after = self.history[since], self.history[until]
        table = StorageTable(self.catalog, self.backend.store, chosen)
        found = [change for part in self.rng.choice(([None], table.partitions(3)))
                 for chunk in table.changes(since, until, part) for change in changes_in(chunk)]
        expected = [(cut(pk, before, chosen), cut(pk, after, chosen)) for pk in {*before, *after}]
        assert sorted(map(repr, found)) == sorted(repr(pair) for pair in expected if repr(pair[0]) != repr(pair[1]))

    def random_bounds(self, column: int) -> tuple[RowRange | None, Callable[[tuple], bool]]:
        """Bounds of key column number `column`, and the predicate for them."""
        if self.rng.random() < 0.4:
            return None, lambda row: True
        lower, upper = random_pk(self.rng)[column], random_pk(self.rng)[column]
        bounds = RowRange(lower, upper, self.rng.random() < 0.5, self.rng.random() < 0.5)

        def is_within(row: tuple) -> bool:
            value = row[column]
            return value is not None and (
                lower is None or value > lower or (bounds.includes_lower and value == lower)
            ) and (upper is None or value < upper or (bounds.includes_upper and value == upper))

        return bounds, is_within


def changes_in(chunk: StreamChunk) -> list[tuple[tuple | None, tuple | None]]:
    """(row before, row after) of each change."""
    found: list[tuple[tuple | None, tuple | None]] = []
    previous = None
    for op, row in chunk.changes():
        if op is Op.UPDATE_INSERT:
            found[-1] = (previous, row)
        else:
            found.append((row, None) if op & 1 else (None, row))
        previous = row
    return found


def cut(pk: Pk, rows: dict[Pk, tuple], columns: list[int]) -> tuple | None:
    """The chosen columns of the row under `pk`, if there is one."""
    row = (*pk, *rows[pk]) if pk in rows else None
    return None if row is None else tuple(row[column] for column in columns)


STEPS: dict[Callable[[World], None], float] = {
    World.write: 8, World.write_slice: 6, World.contradict: 1, World.commit: 4, World.raise_watermark: 0.4,
    World.restart: 0.7, World.compact: 1.5, World.read_points: 3, World.read_scan: 3, World.read_under: 3,
    World.begin_scan: 1, World.read_on: 2, World.read_committed: 2, World.read_changes: 2,
}  # fmt: skip
