"""LoadedFiles: files that are built before their epoch is known, and then enter by a commit.

Their entries have a placeholder epoch and get the epoch of the commit, as the newest writes in it. A load enters as a
whole and once: its id is recorded with the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hummock.base.json_fields import NAME_RULE, is_name
from hummock.epoch import SPILL_MASK, Epoch
from hummock.errors import LoadRefused
from hummock.sstable.info import SstableInfo

PLACEHOLDER = Epoch(1 << 16)    # epoch of the entries in a load's files


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """A sorted run with one entry for each user key; no other writer writes to its tables meanwhile.

    Raises `LoadRefused` for files that are no such run.
    """

    load_id: str
    sstables: tuple[SstableInfo, ...]       # ascending, disjoint, without an epoch or an id

    def __post_init__(self) -> None:
        if not is_name(self.load_id):
            raise LoadRefused(self.load_id, f"its id is not {NAME_RULE}")
        for info in self.sstables:
            if info.stale_rows:
                raise LoadRefused(self.load_id, f"file {info.name} holds several versions of a key")
            if info.min_epoch != info.max_epoch:
                raise LoadRefused(self.load_id, f"file {info.name} holds entries of several epochs")
            if info.global_epoch or info.id:
                raise LoadRefused(self.load_id, f"file {info.name} has an epoch or a number already")
        for left, right in pairwise(self.sstables):
            if left.largest >= right.smallest:
                raise LoadRefused(self.load_id, f"files {left.name} and {right.name} are not in order")

    @property
    def table_ids(self) -> frozenset[int]:
        return frozenset(table_id for info in self.sstables for table_id in info.table_ids)

    @property
    def rows(self) -> int:
        return sum(info.rows for info in self.sstables)

    @property
    def data_bytes(self) -> int:
        return sum(info.data_bytes for info in self.sstables)


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """The result of a load: its files, whose names have `digest`, entered with `epoch`. Level 0: above all others."""

    load_id: str
    epoch: int
    version_id: int
    level: int
    files: int
    rows: int
    data_bytes: int
    digest: str


def epoch_of_load(epoch: Epoch) -> Epoch:
    """The epoch of all entries of a load that `epoch` commits: the newest within that epoch."""
    return Epoch(epoch | SPILL_MASK)
