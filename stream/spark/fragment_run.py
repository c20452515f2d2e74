"""One task of a fragment: the executors of the stream over a complete set of rows, for one epoch.

They process what a new job with an empty upstream would: a barrier, the rows, a barrier. Their state tables are in a
BulkStore, which is initially empty, and are written to files after the second barrier. An aggregation emits at that
barrier only, so the output of a fragment is its net change.
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
from stream.plan.fragments import Fragment
from stream.plan.stream_plan import StreamNode
from stream.worker.actor_builder import ExecutorChain

FLUSH_GROUPS = 1 << 40
"""Never flush before the barrier: the number of groups of a task is bounded by its input rows."""


class RowsExecutor(Executor):
    """Emits `chunks` between two barriers, all in `epoch`."""

    def __init__(self, info: ExecutorInfo, chunks: Iterable[StreamChunk], epoch: Epoch) -> None:
        self.info = info
        self._chunks = chunks
        self._epoch = epoch

    def execute(self) -> Iterator[Message]:
        yield Barrier(EpochPair(self._epoch, NEVER), checkpoint=False)
        yield from self._chunks
        yield Barrier(EpochPair(Epoch(self._epoch + (1 << SPILL_BITS)), self._epoch), checkpoint=True)


class _FragmentChain(ExecutorChain):
    """A fragment under construction; `leaf` builds the executor of its leaf."""

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
    """The output of the fragment's executors over `chunks`; at the end `store` holds their state at `epoch`, and
    `errors` the rows without a value."""
    chain = _FragmentChain(store, options, errors, lambda info: RowsExecutor(info, chunks, epoch))
    for message in chain.build(fragment.root).execute():
        if isinstance(message, StreamChunk):
            yield message
