"""Chunks read and changed by several threads: scans and kernels release the GIL, so a query uses the cores.

The threads belong to the process, and keep nothing of a query. A forked child gets its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from relational.chunk import DataChunk

MOST_THREADS = 8
AHEAD = 2
"""Chunks that each thread is given before the result of the first one is taken."""
LEAST_ROWS = 8_192
"""Of a chunk for which another thread pays."""

Change = Callable[[DataChunk], DataChunk]
Part = TypeVar("Part")
Result = TypeVar("Result")
_pool: ThreadPoolExecutor | None = None


def mapped(chunks: Iterator[DataChunk], change: Change) -> Iterator[DataChunk]:
    """The changed chunks, in order. Some chunks are read ahead, but not before the second one is asked for."""
    first = next(chunks, None)
    if first is None:
        return
    yield change(first)
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    if threads == 1:
        yield from map(change, chunks)
        return
    yield from _results((_submitted(change, chunk) for chunk in chunks), threads)


def read_in_order(read: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """What `read` returns for each of `parts`, in order, some of them ahead."""
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    if threads == 1:
        return map(read, parts)
    return _results((_threads().submit(read, part) for part in parts), threads)


def _results(begun: Iterator[Future[Result]], threads: int) -> Iterator[Result]:
    """The results in order; as many are begun as keep the threads busy."""
    waiting: deque[Future[Result]] = deque()
    for each in begun:
        waiting.append(each)
        if len(waiting) == AHEAD * threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _submitted(change: Change, chunk: DataChunk) -> Future[DataChunk]:
    if chunk.capacity >= LEAST_ROWS:
        return _threads().submit(change, chunk)
    done: Future[DataChunk] = Future()
    try:
        done.set_result(change(chunk))
    except Exception as error:
        done.set_exception(error)
    return done


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "query")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget)
