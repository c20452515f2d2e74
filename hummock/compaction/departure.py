"""Departure: files that leave for the object store in pieces, while the rest of them is built.

A file's pieces are written one after the other, by whichever thread of a pool is free; no thread waits for a piece.
Whoever builds waits while as many pieces as memory allows are on their way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hummock.errors import without_frames
from hummock.object_store.base import Buffer, ObjectStore, ObjectWriter, sstable_data_path, sstable_meta_path
from hummock.sstable.builder import SstableOutput
from hummock.sstable.info import SstableInfo

Submit = Callable[[Callable[[], None]], object]     # has a thread of the pool call it


class Departure:
    """The files of one attempt; `pieces` of them may be on their way. For one building thread."""

    def __init__(self, store: ObjectStore, submit: Submit, pieces: int):
        self._store, self._submit = store, submit
        self._room = threading.Semaphore(pieces)
        self._leaving: dict[str, _LeavingFile] = {}
        self._last: Future[SstableInfo] | None = None

    def leave(self, name: str, piece: Buffer) -> None:
        """The next piece of the file's `.data`. Raises what writing an earlier one raised."""
        self._room.acquire()
        self._file(name).add(piece)

    def finish(self, output: SstableOutput) -> Future[SstableInfo]:
        """The rest of the file; done when both of its objects are durable. Waits until the file before is."""
        if self._last is not None:
            self._last.result()
        self._room.acquire()
        file = self._file(output.name)
        file.add(output.data, output)
        self._last = file.done
        return file.done

    def abort(self) -> None:
        """Gives up the files that did not get to their end. REQUIRES: the pool has ended."""
        for file in self._leaving.values():
            file.abort()

    def _file(self, name: str) -> _LeavingFile:
        if name not in self._leaving:
            self._leaving[name] = _LeavingFile(self._store, name, self._submit, self._room)
        return self._leaving[name]


class _LeavingFile:
    """Guarded by `_lock`: what waits, and whether a thread is at it. That thread alone has the writer."""

    def __init__(self, store: ObjectStore, name: str, submit: Submit, room: threading.Semaphore):
        self._store, self._name, self._submit, self._room = store, name, submit, room
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Buffer, SstableOutput | None]] = deque()
        self._is_served = False
        self._writer: ObjectWriter | None = None
        self.done: Future[SstableInfo] = Future()

    def add(self, piece: Any, output: SstableOutput | None = None) -> None:
        if self.done.done():
            self._room.release()
            self.done.result()
        with self._lock:
            self._waiting.append((piece, output))
            if self._is_served:
                return
            self._is_served = True
        self._submit(self._serve)

    def abort(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def _serve(self) -> None:
        """Writes all that waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_served = False
                    return
                piece, output = self._waiting.popleft()
            try:
                if not self.done.done():
                    self._write(piece, output)
            except BaseException as error:  # it is the builder's to raise
                self.abort()
                self.done.set_exception(without_frames(error).with_traceback(None))
            finally:
                del piece
                self._room.release()

    def _write(self, piece: Buffer, output: SstableOutput | None) -> None:
        if self._writer is None:
            self._writer = self._store.create(sstable_data_path(self._name))
        self._writer.write(piece)
        if output is not None:
            self._writer.close()
            self._writer = None
            self._store.put(sstable_meta_path(self._name), output.meta, if_absent=True)
            self.done.set_result(output.info)
