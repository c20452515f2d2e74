"""MemoryBudget: memory for the rows that many operators keep, in common.

Each operator has a share of it. It reports what it uses and gets to know what it may: all that the others leave, but at
least as much as if all divided the budget equally, those that need less than an equal part leaving the rest to the
others (max-min fairness). So one large operator uses all of it, and a growing one takes from larger ones, which evict
at their next reports.
"""

from __future__ import annotations

import threading
from weakref import WeakSet


class MemoryBudget:
    """`limit_bytes`: of all shares together. Thread safe. Shares that are gone use nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._shares: WeakSet[MemoryShare] = WeakSet()
        self._lock = threading.Lock()

    def share(self) -> MemoryShare:
        """Another one, which uses nothing yet."""
        made = MemoryShare(self)
        self._add(made)
        return made

    @property
    def used_bytes(self) -> int:
        """What all shares use, as of their last reports."""
        with self._lock:
            return sum(each.used_bytes for each in self._shares)

    def _add(self, share: MemoryShare) -> None:
        with self._lock:
            self._shares.add(share)

    def _remove(self, share: MemoryShare) -> None:
        with self._lock:
            self._shares.discard(share)

    def _capacity_of(self, share: MemoryShare, used_bytes: int) -> int:
        with self._lock:
            share.used_bytes = used_bytes
            others = sorted(each.used_bytes for each in self._shares if each is not share)
        left = self.limit_bytes
        for position, used in enumerate(others):
            equal = left // (len(others) - position + 1)
            if used > equal:
                return max(equal, 1)
            left -= used
        return max(left, 1)


class MemoryShare:
    """Of one operator, or of one of its structures. Not thread safe, except for reads of the attributes."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.used_bytes = 0
        """As of the last report."""
        self.capacity_bytes = budget.limit_bytes
        """As of the last report."""

    def report(self, used_bytes: int) -> int:
        """What the operator may use, if it uses `used_bytes` now. At least 1."""
        self.capacity_bytes = self._budget._capacity_of(self, used_bytes)
        return self.capacity_bytes

    def move_to(self, budget: MemoryBudget) -> None:
        """From here on it is one of `budget`."""
        self._budget._remove(self)
        self._budget = budget
        budget._add(self)
        self.report(self.used_bytes)
