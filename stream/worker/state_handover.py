"""StateHandover: what actors of a creation keep in memory, for the actors that continue it in the graph.

A creation apart from the graph ends with a commit of all its state. The actors that continue it have the same vnodes,
and would read their groups from files that nobody has read yet, in the first epoch that the whole graph waits for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from relational.agg import AggGroups


class Handover(Protocol):
    """What actors leave in memory for actors that come after them. `vnodes`: of the actor, uint8[vnode count], None:
    all. `table_id`: of the table with the state of the groups."""

    def leave(self, job_id: int, table_id: int, vnodes: np.ndarray | None, groups: AggGroups) -> None:
        """REQUIRES that no group is dirty."""
        ...

    def take(self, job_id: int, table_id: int, vnodes: np.ndarray | None) -> AggGroups | None:
        """The groups that were left for exactly these vnodes, with the state that the store has; once."""
        ...


class StateHandover:
    """What was left is a copy of what is committed until a job is begun in the graph or begins again: who begins it
    takes it or forgets it. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[int, dict[tuple[int, bytes], AggGroups]] = {}  # by job id; (table id, vnodes)

    def leave(self, job_id: int, table_id: int, vnodes: np.ndarray | None, groups: AggGroups) -> None:
        """REQUIRES that no group is dirty, and that their state is committed before anybody takes them."""
        with self._lock:
            self._left.setdefault(job_id, {})[_key(table_id, vnodes)] = groups

    def take(self, job_id: int, table_id: int, vnodes: np.ndarray | None) -> AggGroups | None:
        """The groups that were left for exactly these vnodes; once."""
        with self._lock:
            return self._left.get(job_id, {}).pop(_key(table_id, vnodes), None)

    def forget(self, job_id: int) -> None:
        """What is left of a job may differ from what is committed, or is not wanted any more."""
        with self._lock:
            self._left.pop(job_id, None)


def _key(table_id: int, vnodes: np.ndarray | None) -> tuple[int, bytes]:
    return table_id, b"" if vnodes is None else vnodes.tobytes()
