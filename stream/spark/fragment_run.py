"""One task of a fragment: the executors of the stream over rows that are all there, for one epoch.

They see what a new job sees whose upstream had nothing before: a barrier, the rows, a barrier. Their state tables lie
in a TaskStore, which begins empty, and leave as files once the second barrier has passed. An aggregation emits at that
barrier only, so what a fragment emits is its net change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hummock.epoch import NEVER, SPILL_BITS, Epoch, EpochPair
from hummock.state_store import StateStore
from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Barrier, Message
from stream.options import StreamOptions
from stream.plan.stream_plan import MaterializeNode, StreamNode
from stream.spark.fragments import Fragment
from stream.worker.actor_builder import ExecutorChain

FLUSH_GROUPS = 1 << 40
"""Never before the barrier: how many groups a task has is bounded by how many rows it gets."""


class RowsExecutor(Executor):
    """`chunks` between two barriers, all in `epoch`."""

    def __init__(self, info: ExecutorInfo, chunks: Iterable[StreamChunk], epoch: Epoch) -> None:
        self.info = info
        self._chunks = chunks
        self._epoch = epoch

    def execute(self) -> Iterator[Message]:
        yield Barrier(EpochPair(self._epoch, NEVER), checkpoint=False)
        yield from self._chunks
        yield Barrier(EpochPair(Epoch(self._epoch + (1 << SPILL_BITS)), self._epoch), checkpoint=True)


class _FragmentChain(ExecutorChain):
    """A fragment under construction: `leaf` stands for its leaf."""

    def __init__(
        self,
        store: StateStore,
        options: StreamOptions,
        errors: ErrorCounts,
        leaf: Callable[[ExecutorInfo], Executor],
    ) -> None:
        super().__init__(store, replace(options, aggregation_flush_groups=FLUSH_GROUPS), errors)
        self._leaf = leaf

    def state_table(self, catalog: Any) -> StateTable:
        return StateTable(catalog, self.store, is_fresh=True, row_cache_bytes=0)

    def stored_errors(self, node: MaterializeNode) -> None:
        """The driver stores them: a task knows those of its own rows only."""

    def build(self, node: StreamNode) -> Executor:
        if not node.inputs:
            return self._leaf(ExecutorInfo(node.schema, node.stream_key, node.identity))
        return super().build(node)


def run_fragment(
    fragment: Fragment,
    chunks: Iterable[StreamChunk],
    store: StateStore,
    options: StreamOptions,
    epoch: Epoch,
    errors: ErrorCounts,
) -> Iterator[StreamChunk]:
    """What comes out of the fragment's executors over `chunks`; at the end `store` holds their state at `epoch`, and
    `errors` their rows without a value."""
    chain = _FragmentChain(store, options, errors, lambda info: RowsExecutor(info, chunks, epoch))
    for message in chain.build(fragment.root).execute():
        if isinstance(message, StreamChunk):
            yield message
