"""Flusher: merges batches of the shared buffer into one sorted run of durable SSTs.

All batches of a task are merged at once, so that a checkpoint gives a few large files however many executors wrote; of
several operations on a key within one pure epoch only the newest is written. Building pauses while its share of
`upload_bytes` is being uploaded. The files of a task of a few rows are inline (`hummock.sstable.inline`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from hummock.base.table_rules import NO_RULES, Tables
from hummock.errors import HummockError
from hummock.iterator.base import HummockIterator
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import ObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.pipeline.sorted_run_writer import write_run
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferChainIterator
from hummock.shared_buffer.buffer import UploadTask
from hummock.sstable.builder import SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.inline import inlined_or_stored
from hummock.sstable.reader import SstableReader
from hummock.sstable.store import SstableStore


class UploadCancelled(Exception):
    """The upload was stopped between two files because it is no longer needed."""


class Flusher:
    """Writes files under unique names from `mint_name`; `give_up` receives names that will not be used.

    Thread safe. ExtraMissing if the filter policy needs a package that is not installed.
    """

    def __init__(
        self,
        store: SstableStore,
        options: StorageOptions,
        mint_name: Callable[[], str],
        give_up: Callable[[list[str]], None] = lambda names: None,
    ):
        self._store, self._mint_name, self._give_up = store, mint_name, give_up
        self._options = replace(options, codec=options.flush_codec)
        filter_policy(options.filter_policy)  # raises before anything is written
        self._room_bytes = options.upload_bytes // options.uploads_in_flight

    def upload(
        self,
        task: UploadTask,
        tables: Tables = NO_RULES,
        is_cancelled: Callable[[], bool] = lambda: False,
        inline_bytes: int = 0,
    ) -> list[SstableReader]:
        """Readers of the run's files, ascending, disjoint, and durable or inline. After an error some may be orphans.

        `tables`: the version's rules by table id, whose prefixes are added to filters. `inline_bytes`: what the version
        can hold of inline files. Raises UploadCancelled.
        """
        minted: list[str] = []
        most_bytes = min(inline_bytes, self._options.inline_bytes)
        built = MemoryObjectStore() if 0 < task.size_bytes <= most_bytes else self._store.object_store
        try:
            outputs = self._build(task, tables, minted, is_cancelled, built)
            if built is not self._store.object_store:
                infos = inlined_or_stored(
                    [output.info for output in outputs], built, self._store.object_store, most_bytes)
                outputs = [output._replace(info=info) for output, info in zip(outputs, infos, strict=True)]
        except BaseException:
            self._let_go(minted)
            raise
        self._let_go(sorted(set(minted).difference(output.name for output in outputs)))
        return [self._store.hold(output) for output in outputs]

    def _build(self, task: UploadTask, tables: Tables, minted: list[str], is_cancelled: Callable[[], bool],
               objects: ObjectStore) -> list[SstableOutput]:
        """The files, in `objects`, without their data. Appends every name to `minted`."""
        def mint() -> str:
            minted.append(self._mint_name())
            return minted[-1]

        def check() -> None:
            if is_cancelled():
                raise UploadCancelled

        return write_run(
            _rows_of(task), task.size_bytes, objects, self._options, mint, name="upload",
            room_bytes=self._room_bytes, tables=tables, flush=task.flush, before_each=check)

    def _let_go(self, names: list[str]) -> None:
        """Reports the names as unused; if that fails, their registration expires."""
        if names:
            with suppress(HummockError):
                self._give_up(names)


def _rows_of(task: UploadTask) -> HummockIterator:
    """The task's entries in order, only the newest for each key and pure epoch."""
    chains = [SharedBufferChainIterator(chain) for chain in chains_of(task.batches)]
    return chains[0] if len(chains) == 1 else RetentionIterator(MergeIterator(chains))


def chains_of(batches: Sequence[SharedBufferBatch]) -> list[tuple[SharedBufferBatch, ...]]:
    """Groups `batches`, newest first, into tuples for SharedBufferChainIterator, newest first.

    Only neighbours are chained, so that where two chains hold a key the first holds the newer write.
    """
    chains: list[tuple[SharedBufferBatch, ...]] = []
    starts: list[bytes] = []
    chain: list[SharedBufferBatch] = []
    for batch in batches:
        at = bisect_left(starts, batch.smallest_key)
        reaches_in = at > 0 and chain[at - 1].largest_key >= batch.smallest_key
        if reaches_in or (at < len(starts) and starts[at] <= batch.largest_key):
            chains.append(tuple(chain))
            starts, chain, at = [], [], 0
        starts.insert(at, batch.smallest_key)
        chain.insert(at, batch)
    return [*chains, tuple(chain)] if chain else []
