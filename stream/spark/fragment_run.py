"""A fragment outside the graph: its executors over a store, one or many epochs, fed with messages.

The executors do not know whether an actor of the graph runs them or a task. Where an actor has channels, a task has
messages that it reads, or that another task has sent; where an actor's barriers come from the meta side, a task's come
with its messages. At each barrier that comes out, the writes of the epoch that it ends are in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hummock.epoch import NEVER, SPILL_BITS, Epoch, EpochPair
from hummock.state_store import StateStore
from relational.chunk import StreamChunk
from relational.expr import ErrorCounts
from relational.memory_budget import MemoryBudget
from relational.table.state_table import StateTable
from stream.executor.base import Executor, ExecutorInfo, aligned
from stream.message import Barrier, Message
from stream.options import StreamOptions, task_cache_bytes
from stream.plan.fragments import Fragment
from stream.plan.stream_plan import StreamNode, UnionNode
from stream.worker.actor_builder import ExecutorChain

if TYPE_CHECKING:
    from relational.catalog.objects import TableCatalog

OpenTable: TypeAlias = "Callable[[TableCatalog], StateTable]"


def in_one_epoch(chunks: Iterable[StreamChunk], epoch: Epoch) -> Iterator[Message]:
    """The messages of `epoch` to a fragment that had no rows before it."""
    yield Barrier(EpochPair(epoch, NEVER), checkpoint=False)
    yield from chunks
    yield Barrier(EpochPair(Epoch(epoch + (1 << SPILL_BITS)), epoch), checkpoint=True)


def run_fragment(
    fragment: Fragment,
    vnodes: np.ndarray | None,
    store: StateStore,
    inputs: Sequence[Iterable[Message]],
    options: StreamOptions,
    errors: ErrorCounts,
    *,
    is_fresh: bool = False,
) -> Iterator[Message]:
    """The output of the fragment's executors, which own `vnodes` (uint8[vnode_count], 1 for those owned; None: all).

    `inputs`: the messages of each leaf, in pre-order: a barrier that opens the first epoch, then the chunks of each
    epoch and its barrier, equal in all inputs. State is read from `store` as of the epoch before, and written to it
    before the barrier is yielded; the caller seals the epochs. `errors` counts the rows without a value. `is_fresh`:
    the state is empty and there is one epoch, in which each key is written once."""
    if len(inputs) != len(fragment.leaves):
        raise ValueError(f"{len(inputs)} inputs for a fragment with {len(fragment.leaves)} leaves")

    def open_table(catalog: TableCatalog) -> StateTable:
        owned = vnodes if catalog.distribution_key else None
        if is_fresh:
            return StateTable(catalog, store, owned, is_fresh=True, row_cache_bytes=0)
        return StateTable(catalog, store, owned)

    chain = _FragmentChain(store, options, errors, inputs, open_table)
    return chain.build(fragment.root).execute()


class _InputExecutor(Executor):
    """Emits the messages of `inputs`, those of an epoch from one after the other."""

    def __init__(self, info: ExecutorInfo, inputs: Sequence[Iterable[Message]]) -> None:
        self.info = info
        self._inputs = tuple(map(iter, inputs))

    def execute(self) -> Iterator[Message]:
        while True:
            barrier: Barrier | None = None
            for messages in self._inputs:
                for message in messages:
                    if isinstance(message, Barrier):
                        barrier = aligned(barrier, message, self.info.identity)
                        break
                    yield message
                else:
                    return
            assert barrier is not None, "a fragment has an input"
            yield barrier


class _FragmentChain(ExecutorChain):
    """A fragment under construction, whose leaves are fed with messages. `open_table` opens its state."""

    def __init__(
        self, store: StateStore, options: StreamOptions, errors: ErrorCounts, inputs: Sequence[Iterable[Message]],
        open_table: OpenTable,
    ) -> None:
        super().__init__(store, options, errors, MemoryBudget(task_cache_bytes(options)))
        self._inputs, self._open_table = iter(inputs), open_table

    def state_table(self, catalog: TableCatalog) -> StateTable:
        return self._open_table(catalog)

    def build(self, node: StreamNode) -> Executor:
        leaves = node.inputs if isinstance(node, UnionNode) else () if node.inputs else (node,)
        if leaves:
            info = ExecutorInfo(node.schema, node.stream_key, node.identity)
            return _InputExecutor(info, [next(self._inputs) for _ in leaves])
        return super().build(node)
