"""SharedIndexes: where the blocks of a file lie is read and checked once, however many ranges touch the file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from hummock.sstable.index import SstableIndex

FILES_LIMIT = 64        # whose indexes are held; ranges at work touch the files of a few key ranges


class SharedIndexes:
    """The newest indexes by file name. Thread safe; who wants one that another is reading waits for it."""

    def __init__(self, limit: int = FILES_LIMIT) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._held: OrderedDict[str, _Place] = OrderedDict()

    def get(self, name: str, read: Callable[[], SstableIndex]) -> SstableIndex:
        """The index of file `name`, from `read()` where nobody has read it before. Raises what that raises."""
        with self._lock:
            place = self._held.setdefault(name, _Place())
            self._held.move_to_end(name)
            if len(self._held) > self._limit:
                self._held.popitem(last=False)
        with place.lock:
            if place.index is None:
                place.index = read()
            return place.index


class _Place:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.index: SstableIndex | None = None
