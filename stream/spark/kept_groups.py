"""KeptGroups: the groups of aggregations that a task leaves in its process for the task of the next epoch.

They are a copy of the state that the task has written. Whether that was committed, and whether another task has changed
it since, only the driver knows: it names the attempt whose report it accepted, and with another name, or in another
process, a task reads the groups from the store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from stream.plan.stream_plan import HashAggNode
from stream.protocol import ActorSpec

if TYPE_CHECKING:
    from relational.agg import AggGroups

StateOf: TypeAlias = tuple[str, int, bytes]
"""URL of a store, id of a state table, and the vnodes of an actor."""


class KeptGroups:
    """At most `capacity_bytes` of groups, those of the latest tasks. Thread safe."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._left: OrderedDict[StateOf, tuple[str, AggGroups]] = OrderedDict()  # with the attempt that left them

    def take(self, state: StateOf, attempt: str) -> AggGroups | None:
        """The groups that `attempt` has left, once. Those of any other attempt are dropped."""
        with self._lock:
            left_by, groups = self._left.pop(state, ("", None))
        if groups is None or left_by == attempt:
            return groups
        groups.release()
        return None

    def leave(self, state: StateOf, attempt: str, groups: AggGroups) -> None:
        """REQUIRES that no group is dirty."""
        with self._lock:
            dropped = [self._left.pop(state, None)]
            if groups.size_bytes <= self._capacity_bytes:
                self._left[state] = attempt, groups
            while sum(each.size_bytes for _, each in self._left.values()) > self._capacity_bytes:
                dropped.append(self._left.popitem(last=False)[1])
        for each in dropped:
            if each is not None:
                each[1].release()

    def clear(self) -> None:
        """Drops all groups."""
        with self._lock:
            self._left.clear()

    @property
    def size_bytes(self) -> int:
        """Memory of the groups."""
        with self._lock:
            return sum(groups.size_bytes for _, groups in self._left.values())


class TaskGroups:
    """What the actors of one task take from `kept` and leave there, as a StateHandover. `accepted`: by actor, the
    attempt that ran it last. REQUIRES that the groups which `attempt` leaves are used only if its report counts."""

    def __init__(
        self, kept: KeptGroups, url: str, actors: Sequence[ActorSpec], accepted: Mapping[int, str], attempt: str
    ) -> None:
        self._kept, self._url, self._attempt = kept, url, attempt
        self._accepted = {
            node.state_table.id: accepted[spec.actor_id]
            for spec in actors if spec.actor_id in accepted
            for node in spec.root.walk() if isinstance(node, HashAggNode)
        }  # fmt: skip

    def take(self, job_id: int, table_id: int, vnodes: np.ndarray | None) -> AggGroups | None:
        """The groups with exactly these vnodes (uint8[vnode count], None: all), whose state is in table `table_id`."""
        return self._kept.take(self._state_of(table_id, vnodes), self._accepted.get(table_id, ""))

    def leave(self, job_id: int, table_id: int, vnodes: np.ndarray | None, groups: AggGroups) -> None:
        """REQUIRES that no group is dirty."""
        self._kept.leave(self._state_of(table_id, vnodes), self._attempt, groups)

    def _state_of(self, table_id: int, vnodes: np.ndarray | None) -> StateOf:
        return self._url, table_id, b"" if vnodes is None else vnodes.tobytes()


def keeps_groups(spec: ActorSpec) -> bool:
    """Whether an actor has groups to leave."""
    return any(isinstance(node, HashAggNode) for node in spec.root.walk())
