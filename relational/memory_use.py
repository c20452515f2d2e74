"""MemoryUse: what the rows that an operator keeps take in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """`rows` that are kept. `column_bytes`: of their columns alone; `used_bytes`: of all buffers, with these, by
    capacity. `budget_bytes`: what it may use now, beyond which rows are evicted; of several the largest; None: within
    that of another one. `evicted`: keys that have left memory so far, each with all of its rows."""

    rows: int
    column_bytes: int
    used_bytes: int
    budget_bytes: int | None
    evicted: int

    def __add__(self, other: MemoryUse) -> MemoryUse:
        """Of both together."""
        budgets = [each for each in (self.budget_bytes, other.budget_bytes) if each is not None]
        return MemoryUse(
            self.rows + other.rows,
            self.column_bytes + other.column_bytes,
            self.used_bytes + other.used_bytes,
            max(budgets, default=None),
            self.evicted + other.evicted,
        )

    @property
    def beside_bytes(self) -> int:
        """Bytes beside the columns: of indexes, ids, tags, copies of keys, and free capacity."""
        return self.used_bytes - self.column_bytes
