"""Uploader: batches of the shared buffer become one sorted run of durable SSTs.

All batches of a task are merged at once, so that a checkpoint gives a few large files however many executors
wrote; of several operations on a key within one pure epoch only the newest is written. Files are built on the
caller's thread, without the GIL, and put on others as they are finished; building waits while as many bytes as
`upload_bytes` are on their way.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from hummock.compaction.pipeline import run_pipeline
from hummock.compaction.retention import RetentionIterator
from hummock.errors import HummockError
from hummock.iterator.base import HummockIterator
from hummock.iterator.merge import MergeIterator
from hummock.options import StorageOptions
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferChainIterator
from hummock.shared_buffer.buffer import UploadTask
from hummock.sstable.builder import SstableOutput
from hummock.sstable.filter_policy import filter_policy
from hummock.sstable.reader import SstableReader
from hummock.sstable.split_builder import SplitSstableBuilder
from hummock.sstable.store import SstableStore
from hummock.table_rules import Tables

PUT_THREADS = 4  # files that leave at the same time, while the next one is built
NO_RULES: Tables = {}


class UploadCancelled(Exception):
    """The upload ended between two files because nobody wants it any more."""


class _Room:
    """Bytes of which at most `limit` are taken at a time; a single taker of more is let in alone."""

    def __init__(self, limit: int):
        self._limit, self._taken = limit, 0
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._taken == 0 or self._taken + size <= self._limit)
            self._taken += size

    def give(self, size: int) -> None:
        with self._changed:
            self._taken -= size
            self._changed.notify_all()


class Uploader:
    """Writes files under names from `mint_name`, each new; `give_up` is told names that stand for nothing.

    Thread safe.
    """

    def __init__(
        self,
        store: SstableStore,
        options: StorageOptions,
        mint_name: Callable[[], str],
        give_up: Callable[[list[str]], None] = lambda names: None,
    ):
        self._store, self._options, self._mint_name, self._give_up = store, options, mint_name, give_up
        self._room = _Room(options.upload_bytes)

    def upload(
        self, task: UploadTask, tables: Tables = NO_RULES, is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[SstableReader]:
        """Readers of the run's files, ascending and disjoint, durable. After an error some may be orphans.

        `tables`: the version's rules by table id, whose prefixes are filtered too. Raises UploadCancelled.
        """
        with self._names() as mint_name:
            policy = filter_policy(self._options.filter_policy, self._options.filter_bits_per_key)
            prefixes = {table_id: rules.prefix for table_id, rules in tables.items() if rules.prefix}
            builder = SplitSstableBuilder(self._options, policy, mint_name, prefixes)
            with ThreadPoolExecutor(PUT_THREADS, thread_name_prefix="upload") as pool:
                puts: list[Future[SstableReader]] = []

                def take(output: SstableOutput) -> None:
                    if is_cancelled():
                        raise UploadCancelled
                    _raise_first(puts)
                    self._room.take(_bytes_of(output))
                    puts.append(pool.submit(self._put, output))

                try:
                    run_pipeline(_rows_of(task), builder, take, flush=task.flush)
                    return [put.result() for put in puts]
                finally:
                    puts.clear()  # a put's error refers to this frame: together they would keep files in memory

    @contextmanager
    def _names(self) -> Iterator[Callable[[], str]]:
        """A source of names, all of which are given up where the body fails."""
        minted: list[str] = []

        def mint() -> str:
            minted.append(self._mint_name())
            return minted[-1]

        try:
            yield mint
        except BaseException:
            with suppress(HummockError):
                self._give_up(minted)
            raise

    def _put(self, output: SstableOutput) -> SstableReader:
        try:
            return self._store.put(output)
        finally:
            self._room.give(_bytes_of(output))


def _rows_of(task: UploadTask) -> HummockIterator:
    """The task's entries in order, of each key and pure epoch the newest."""
    chains = [SharedBufferChainIterator(chain) for chain in chains_of(task.batches)]
    return MergeIterator(chains) if len(chains) == 1 else RetentionIterator(MergeIterator(chains))


def chains_of(batches: Sequence[SharedBufferBatch]) -> list[tuple[SharedBufferBatch, ...]]:
    """`batches`, newest first, parted into tuples for SharedBufferChainIterator, newest first.

    Only neighbours come into one chain, so that where two chains hold a key the first holds the newer write.
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


def _raise_first(puts: list[Future[SstableReader]]) -> None:
    """Raises what one of the ended puts raised: there is no use in building more."""
    for put in puts:
        if put.done():
            put.result()


def _bytes_of(output: SstableOutput) -> int:
    return len(output.data) + len(output.meta)  # type: ignore[arg-type]
