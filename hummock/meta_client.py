"""What a process may ask of the manager, wherever the manager is.

Versions come as immutable values. A role is held by a session; a call with an overtaken session raises
`Fenced`. Pins belong to a node: one process, or one manager of local versions in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hummock.base.table_rules import TableRules
from hummock.compaction.task import CompactTask, RangeResult
from hummock.epoch import Epoch
from hummock.loaded_files import LoadAnswer, LoadedFiles
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion

NO_RULE_CHANGES: Mapping[int, TableRules | None] = {}


@dataclass(frozen=True, slots=True)
class WriterSession:
    """The writer role as `node` took it over; `token` tells two claims of one generation apart."""

    generation: int
    node: str
    token: str


class Subscription(Protocol):
    """What a subscriber holds; `error` is what its callback raised last, None once it has taken the newest update."""

    error: Exception | None

    def close(self) -> None: ...


class HummockMetaClient(Protocol):
    """`HummockManager` satisfies it; so does whatever carries its calls elsewhere. Thread safe."""

    @property
    def version(self) -> HummockVersion:
        """The newest version that this process knows of."""

    @property
    def lease_ms(self) -> int:
        """How long a node's pins outlive its last sign of life."""

    def refresh(self) -> HummockVersion:
        """The newest version that there is."""

    def subscribe(self, callback: Callable[[HummockVersion], None]) -> Subscription:
        """Calls `callback` with each version installed from here on, ascending, one at a time.

        REQUIRES of the callback that it takes no lock under which others call this client.
        """

    def subscribe_requests(self, callback: Callable[[int], None]) -> Subscription:
        """Calls `callback` with the number of each key range that this process asks to be compacted from here on;
        under the same conditions as `subscribe`."""

    def claim_writer(self, node: str) -> WriterSession:
        """Takes the writer role over: the former writer's next commit raises `Fenced`."""

    def commit_epoch(self, session: WriterSession, epoch: Epoch,
                     sstables: Sequence[SstableInfo], *, tables: Mapping[int, TableRules | None] = NO_RULE_CHANGES,
                     dropped_tables: Iterable[int] = (), loads: Sequence[LoadedFiles] = ()) -> HummockVersion:
        """The version with `epoch` committed. Repeating a call that succeeded gives its answer again."""

    def load_answer(self, load_id: str) -> LoadAnswer | None:
        """What became of a load; None: it was never committed, or so long ago that it is forgotten."""

    def pin_version(self, node: str) -> HummockVersion:
        """The newest version; its files stay until `unpin_version_before` passes it or the lease ends."""

    def unpin_version_before(self, node: str, version_id: int) -> None:
        """Gives back the node's pins of versions below `version_id`."""

    def pin_snapshot(self, node: str, epoch: Epoch | None = None) -> Epoch:
        """The pinned epoch, by default the committed one. Raises `EpochTooOld` below the safe epoch."""

    def unpin_snapshot(self, node: str, epoch: Epoch) -> None:
        """Gives back one pin of `epoch`."""

    def renew_lease(self, node: str) -> None:
        """Prolongs the node's lease to its oldest pins, and its uploads. Raises `SnapshotExpired`."""

    def keep_lease(self, node: str) -> None:
        """`renew_lease`, once a third of the lease is over or it holds back files that the node does not need."""

    def release_node(self, node: str) -> None:
        """Gives back everything that the node has pinned or registered."""

    def register_upload(self, node: str, prefix: str) -> None:
        """Files named by `prefix` are the node's and on their way: vacuum leaves them alone while the row is
        in force. REQUIRES that it returns before the first of them is written.
        """

    def renew_upload(self, node: str) -> None:
        """Prolongs the rows of all prefixes of the node, as `renew_lease` does too."""

    def release_upload(self, node: str, prefix: str) -> None:
        """Nothing under `prefix` is on its way any more. Raises nothing: a row that stays will run out."""

    def get_compact_task(self, holder: str, *, does_large: bool = False) -> tuple[CompactTask, str] | None:
        """A task and the token of this attempt at it; None: nothing is due. Who `does_large` ones gets them alone."""

    def heartbeat_task(self, task_id: int, token: str, progress_rows: int) -> None:
        """Keeps the attempt in force. Raises `TaskRefused` where it is not any more."""

    def report_compact_task(self, task_id: int, token: str, results: Sequence[RangeResult]) -> HummockVersion:
        """The version with the task's outputs; a repeated report is answered again. Raises `TaskRefused`."""

    def fail_task(self, task_id: int, token: str, error: str) -> None:
        """The attempt ended with `error`; the task is given out again after a while, a few times."""

    def hand_back_task(self, task_id: int, token: str) -> None:
        """The attempt ends without a fault of the task: others may take it at once."""

    def cancel_task(self, task_id: int, reason: str) -> bool:
        """Whether the task was under way; its attempt learns of it by the next heartbeat or report."""

    def compaction_debt(self) -> int:
        """How many tasks are under way, requested or due; whoever subscribed has the version that was judged."""
