"""SessionWorker: a worker that sessions send statements to; of this process, or one whose actors run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stream.protocol import Worker

if TYPE_CHECKING:
    from stream.actor_metrics import FragmentFigures
    from stream.epoch_figures import EpochFigures
    from stream.job_memory import OperatorMemory
    from stream.job_profile import FragmentProfile
    from stream.message import Block, Statement
    from stream.worker.pending_statements import PendingStatements


class SessionWorker(Worker, Protocol):
    """A worker that sessions send statements to and look into."""

    pending: PendingStatements

    def execute(self, table_id: int, table_name: str, statement: Statement) -> int:
        """Rows affected, once the table has evaluated the statement; see `ComputeNode.execute`."""
        ...

    def begin(self, table_id: int, table_name: str, statement: Statement) -> Callable[[], int]:
        """Sends a statement; what is returned waits for its result."""
        ...

    def begin_block(self, block: Block) -> Callable[[], int]:
        """Sends the data changes of a transaction; what is returned waits for the rows affected by all of them."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a barrier is under way. Takes no lock."""
        ...

    def fragments(self) -> Sequence[FragmentFigures]:
        """Figures of all running fragments, by job and fragment."""
        ...

    def memory(self) -> Sequence[OperatorMemory]:
        """What the executors of all running jobs keep in memory, by job and fragment."""
        ...

    def recent_epochs(self) -> Sequence[EpochFigures]:
        """Figures of the last epochs that ran as tasks, the newest one last."""
        ...

    def profile(self, job_id: int, job: str, interval: Callable[[], None]) -> Sequence[FragmentProfile]:
        """Measures the fragments of a job while `interval()` waits. JobNotRunning, ProfileInterrupted."""
        ...
