"""The manager's interface, wherever the manager runs.

Versions are immutable values. A role is held by a session; a call with a superseded session raises `Fenced`. Pins
belong to a node: one process, or one LocalVersionManager in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.compaction.task import CompactTask, RangeResult
from hummock.epoch import Epoch
from hummock.errors import Corruption
from hummock.loaded_files import LoadAnswer, LoadedFiles
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion

NO_RULE_CHANGES: Mapping[int, TableRules | None] = {}
NO_WATERMARKS: Mapping[int, KeyWatermark] = {}


@dataclass(frozen=True, slots=True)
class WriterSession:
    """The writer role as claimed by `node`; `token` distinguishes two claims of one generation."""

    generation: int
    node: str
    token: str


class Subscription(Protocol):
    """A subscription; `error` is the callback's last error, None once it has accepted the newest update."""

    error: Exception | None

    def close(self) -> None: ...


class HummockMetaClient(Protocol):
    """Implemented by `HummockManager`, and by whatever forwards calls to one. Thread safe."""

    @property
    def version(self) -> HummockVersion:
        """The newest version that this process knows of."""

    @property
    def lease_ms(self) -> int:
        """How long a node's pins outlive its last renewal."""

    def refresh(self) -> HummockVersion:
        """The newest version in the meta store."""

    def subscribe(self, callback: Callable[[HummockVersion], None]) -> Subscription:
        """Calls `callback` with each version installed from now on, ascending, one at a time.

        REQUIRES that the callback takes no lock under which others call this client.
        """

    def subscribe_requests(self, callback: Callable[[int], None]) -> Subscription:
        """Calls `callback` with the number of each range compaction that this process requests from now on; with the
        requirement of `subscribe`.
        """

    def claim_writer(self, node: str) -> WriterSession:
        """Claims the writer role: the former writer's next commit raises `Fenced`."""

    def commit_epoch(self, session: WriterSession, epoch: Epoch,
                     sstables: Sequence[SstableInfo], *, tables: Mapping[int, TableRules | None] = NO_RULE_CHANGES,
                     watermarks: Mapping[int, KeyWatermark] = NO_WATERMARKS, dropped_tables: Iterable[int] = (),
                     loads: Sequence[LoadedFiles] = ()) -> HummockVersion:
        """The version with `epoch` committed. Idempotent: a repetition returns the same answer."""

    def set_rules(self, session: WriterSession, tables: Mapping[int, TableRules | None]) -> HummockVersion:
        """The version with these rules of tables, at the same epoch; watermarks stay as they are."""

    def load_answer(self, load_id: str) -> LoadAnswer | None:
        """The result of a load; None: never committed, or forgotten after a long time."""

    def pin_version(self, node: str) -> HummockVersion:
        """Pins and returns the newest version; its files are kept until `unpin_version_before` passes it or the lease
        ends.
        """

    def unpin_version_before(self, node: str, version_id: int) -> None:
        """Releases the node's pins of versions below `version_id`."""

    def pin_snapshot(self, node: str, epoch: Epoch | None = None) -> Epoch:
        """Pins and returns the epoch, by default the committed one. Raises `EpochTooOld` below the safe epoch."""

    def unpin_snapshot(self, node: str, epoch: Epoch) -> None:
        """Releases one pin of `epoch`."""

    def renew_lease(self, node: str) -> None:
        """Renews the node's lease, reduced to its oldest pins, and its uploads. Raises `SnapshotExpired`."""

    def keep_lease(self, node: str) -> None:
        """Calls `renew_lease` once a third of the lease is over or it keeps files that the node does not need."""

    def release_node(self, node: str) -> None:
        """Releases everything that the node has pinned or registered."""

    def register_upload(self, node: str, *prefixes: str) -> None:
        """Registers prefixes of files that the node is about to write: vacuum keeps them while the rows are valid.
        REQUIRES that the call returns before the first of them is written.
        """

    def renew_upload(self, node: str) -> None:
        """Renews the rows of all prefixes of the node, as `renew_lease` does too."""

    def release_upload(self, node: str, *prefixes: str) -> None:
        """Ends the registration of `prefixes`. Raises nothing: remaining rows expire."""

    def get_compact_task(self, holder: str, *, does_large: bool = False,
                         early_bytes: int = 0) -> tuple[CompactTask, str] | None:
        """A task and the token of this attempt; None: nothing is due, nor worth merging early by reading at most
        `early_bytes`. Large tasks are reserved for callers that `does_large`, while there are any.
        """

    def is_compaction_due(self, version: HummockVersion, running: Sequence[CompactTask] = ()) -> bool:
        """Whether `get_compact_task` may have work because of `version`, while the caller runs these tasks."""

    def early_bytes(self, version: HummockVersion, running: Sequence[CompactTask] = ()) -> int:
        """Bytes of what may be merged early, while the caller runs these tasks; 0: nothing."""

    def heartbeat_task(self, task_id: int, token: str, progress_rows: int) -> None:
        """Renews the attempt's lease. Raises `TaskRefused` if it was lost."""

    def report_compact_task(self, task_id: int, token: str, results: Sequence[RangeResult]) -> HummockVersion:
        """The version with the task's outputs; a repeated report gets the same answer. Raises `TaskRefused`."""

    def fail_task(self, task_id: int, token: str, error: str, damage: Corruption | None = None) -> None:
        """Reports that the attempt ended with `error`; the task is assigned again after a while, a few times. With
        `damage` it has ended, and is not picked again at once.
        """

    def damage_in(self, key_range: KeyRange) -> Corruption | None:
        """The damage of a task that is not picked again for now, on files that may hold keys of the range."""

    def hand_back_task(self, task_id: int, token: str) -> None:
        """Returns the task, which did not fail: others may take it at once."""

    def compaction_debt(self) -> int:
        """Number of tasks that are running, requested or due; every subscriber has the version that was examined."""
