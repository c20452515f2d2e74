"""VnodeMap: the target that owns each vnode, and the reassignment when targets are added or removed.

A target is an actor, a partition of a scan or a partition of a job, identified by an id. A change of parallelism moves
as few vnodes as possible: with n vnodes over k targets each owns n // k of them or one more, the targets that own most
keep the larger shares, and only the vnodes above a share move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from relational.chunk.vnode import vnodes_of
from relational.types.vnode_rule import VnodeRule
from relational.types.vnodes import DEFAULT_VNODE_COUNT, MAX_VNODE_COUNT


class VnodeMap:
    """`targets` is int32[vnode_count], the owner of each vnode; immutable."""

    def __init__(self, targets: Sequence[int] | np.ndarray):
        self.targets = np.array(targets, dtype=np.int32)
        if self.targets.ndim != 1 or not 1 <= len(self.targets) <= MAX_VNODE_COUNT:
            raise ValueError(f"a vnode map has 1 to {MAX_VNODE_COUNT} entries, not {self.targets.shape}")
        self.targets.flags.writeable = False
        owners, indices = np.unique(self.targets, return_inverse=True)
        self.owners = owners  # int32[targets that own a vnode], ascending
        self.owner_indices = indices.astype(np.int32)  # int32[vnode_count]: per vnode an index into `owners`
        self.partition = self.owner_indices.tobytes()  # equal for maps that part rows in the same way

    @classmethod
    def even(cls, targets: Sequence[int], vnode_count: int = DEFAULT_VNODE_COUNT) -> VnodeMap:
        """Contiguous ranges of vnodes, as equal as possible, for the `targets` in their order."""
        owners = np.array(_checked(targets, vnode_count), dtype=np.int32)
        return cls(owners[np.arange(vnode_count) * len(owners) // vnode_count])

    @property
    def vnode_count(self) -> int:
        return len(self.targets)

    def vnodes_owned_by(self, target: int) -> np.ndarray:
        """The vnodes of one target, ascending: uint16[n]."""
        return np.flatnonzero(self.targets == target).astype(np.uint16)

    def bitmap_of(self, target: int) -> np.ndarray:
        """uint8[vnode_count]: 1 if the target owns the vnode, as state tables expect it."""
        return (self.targets == target).view(np.uint8)

    def targets_of(
        self, columns: Sequence, rows: int | None = None, rule: VnodeRule = VnodeRule.HASH
    ) -> np.ndarray:
        """int32[rows]: the target of each row of the distribution columns, whose vnodes follow `rule`."""
        return self.targets[vnodes_of(columns, self.vnode_count, rows=rows, rule=rule)]

    def rescaled(self, targets: Iterable[int]) -> VnodeMap:
        """The map over these targets, as even as possible, that moves the fewest vnodes.

        A target above its share releases its last vnodes; they are assigned, ascending, to the targets below theirs in
        the order given. ValueError for no target, a duplicate, or more targets than vnodes.
        """
        wanted = _checked(targets, self.vnode_count)
        held = {target: self.vnodes_owned_by(target) for target in wanted}
        shares = _shares(wanted, {target: len(vnodes) for target, vnodes in held.items()}, self.vnode_count)
        owners = self.targets.copy()
        is_free = ~np.isin(owners, wanted)
        for target in wanted:
            is_free[held[target][shares[target] :]] = True
        takers = [np.full(max(shares[target] - len(held[target]), 0), target, np.int32) for target in wanted]
        owners[is_free] = np.concatenate(takers)
        return VnodeMap(owners)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VnodeMap) and np.array_equal(self.targets, other.targets)

    def __hash__(self) -> int:
        return hash(self.targets.tobytes())

    def __repr__(self) -> str:
        """Ranges of vnodes with one owner, as `VnodeMap(0-127: 1, 128-255: 2)`."""
        starts = [0, *(np.flatnonzero(np.diff(self.targets)) + 1).tolist(), self.vnode_count]
        runs = (f"{start}-{end - 1}: {self.targets[start]}" for start, end in pairwise(starts))
        return f"VnodeMap({', '.join(runs)})"


def vnode_ranges(owned: np.ndarray, groups: int) -> list[tuple[int, int]]:
    """[first, last] vnodes of at most `groups` groups of neighbours, with as equal a number of `owned` ones as
    possible.

    `owned` is uint8[vnode_count]. A range never spans a vnode that is not owned, so each is one range of keys; if the
    owned ones form more runs than `groups`, there are as many ranges as runs.
    """
    if groups < 1:
        raise ValueError(f"{groups} groups of vnodes")
    edges = np.flatnonzero(np.diff(np.concatenate(([0], owned, [0]))))
    pieces = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    parts = [1] * len(pieces)
    for _ in range(min(groups, int(np.count_nonzero(owned))) - len(pieces)):
        widest = max(range(len(pieces)), key=lambda at: (pieces[at][1] - pieces[at][0]) / parts[at])
        parts[widest] += 1
    ranges = []
    for (start, end), count in zip(pieces, parts, strict=True):
        cuts = [start + (end - start) * part // count for part in range(count + 1)]
        ranges += [(first, after - 1) for first, after in pairwise(cuts)]
    return ranges


def _checked(targets: Iterable[int], vnode_count: int) -> list[int]:
    wanted = [int(target) for target in targets]
    if not 1 <= len(wanted) <= vnode_count or len(set(wanted)) != len(wanted):
        raise ValueError(f"{vnode_count} vnodes go to 1 to {vnode_count} different targets, not to {wanted}")
    return wanted


def _shares(targets: Sequence[int], held: dict[int, int], vnode_count: int) -> dict[int, int]:
    """The number of vnodes for each target; one more for those that own most, the earlier ones among equals."""
    least, larger = divmod(vnode_count, len(targets))
    by_size = sorted(targets, key=lambda target: -held[target])
    return {target: least + (rank < larger) for rank, target in enumerate(by_size)}
