"""JoinStep: the changes of one input of a join that meet the rows of the other one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relational.chunk import Column, StreamChunk
from stream.executor.join_side import NO_ROWS, JoinSide


@dataclass(slots=True)
class JoinStep:
    """Net changes of input `number`, which is `own`, and their `keys`. `own_ids`, `other_ids`: the key id of each of
    them on both sides, -1: not in memory. `own_unread`, `unread`: of each key that exceeds the budget of its own or of
    the other side a change that has it.

    `partners`: how many each change has on the other side, complete when all were looked up. `unmatched`: ids of rows
    of the other side that have lost their last partner. Where all rows of the other side with one key have the same
    partners: `gained`, `lost`, bool[capacity]: whether those with the key of a change find a first one, or lose the
    last one. `waits`, likewise: whether it has none, where only changes without one are stored.
    """

    number: int
    own: JoinSide
    other: JoinSide
    changes: StreamChunk
    keys: list[Column]
    own_ids: np.ndarray
    other_ids: np.ndarray
    own_unread: np.ndarray
    unread: np.ndarray
    partners: np.ndarray
    gained: np.ndarray
    lost: np.ndarray
    waits: np.ndarray
    unmatched: np.ndarray = field(default_factory=lambda: NO_ROWS)

    def keys_at(self, rows: np.ndarray) -> list[Column]:
        """The keys of some of the changes."""
        return self.changes.take(rows).project(self.own.input.key).columns if len(rows) else []
