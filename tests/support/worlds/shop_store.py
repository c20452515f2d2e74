"""A store in a directory with a table that changes in several epochs, for readers in other processes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from stream.session.connect import connect
from stream.session.session import Session

COLUMNS = ("g", "k", "name", "v")
Rows = dict[tuple[int, int], tuple]


@dataclass
class Shop:
    """`history`: the rows by key at each flushed epoch, ascending."""

    session: Session
    url: str
    rng: random.Random
    rows: Rows = field(default_factory=dict)
    history: dict[int, Rows] = field(default_factory=dict)

    @classmethod
    def open(cls, directory: Path, seed: int = 1, rows: int = 600) -> Shop:
        url = f"file://{directory}/store"
        shop = cls(connect(url, create=True,
            block_bytes=500, sstable_bytes=4_000, inline_bytes=2_000, history_ms=600_000), url, random.Random(seed))
        shop.session.sql("CREATE TABLE items (g INT, k BIGINT, name VARCHAR, v DOUBLE, PRIMARY KEY (g, k))")
        shop.insert(rows)
        return shop

    def insert(self, count: int) -> int:
        """Inserts `count` new rows; returns the epoch."""
        first = max((key for _, key in self.rows), default=-1) + 1
        fresh = [(number % 7, number, f"item {number}" if number % 5 else None, number / 4)
                 for number in range(first, first + count)]
        values = ", ".join(f"({g}, {k}, {'NULL' if name is None else repr(name)}, {v})" for g, k, name, v in fresh)
        self.session.sql(f"INSERT INTO items VALUES {values}")
        return self.flushed({row[:2]: row for row in fresh}, ())

    def change(self) -> int:
        """Updates some rows and deletes some; returns the epoch."""
        keys = self.rng.sample(sorted(self.rows), 30)
        changed = {(g, k): (g, k, "changed", self.rows[g, k][3]) for g, k in keys[:20]}
        for group, key in changed:
            self.session.sql(f"UPDATE items SET name = 'changed' WHERE g = {group} AND k = {key}")
        for group, key in keys[20:]:
            self.session.sql(f"DELETE FROM items WHERE g = {group} AND k = {key}")
        return self.flushed(changed, keys[20:])

    def flushed(self, put: Rows, deleted) -> int:
        epoch = self.session.flush()
        self.rows = {key: row for key, row in (self.rows | put).items() if key not in deleted}
        self.history[epoch] = self.rows
        return epoch
