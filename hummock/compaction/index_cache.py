"""IndexCache: reads and verifies the index of a file once, however many ranges touch the file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from hummock.sstable.index import SstableIndex

FILES_LIMIT = 64        # indexes held; running ranges touch the files of a few key ranges


class IndexCache:
    """The most recent indexes by file name. Thread safe; concurrent callers wait for the one that reads."""

    def __init__(self, limit: int = FILES_LIMIT) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._held: OrderedDict[str, _Slot] = OrderedDict()

    def get(self, name: str, read: Callable[[], SstableIndex]) -> SstableIndex:
        """The index of file `name`, from `read()` if it is not cached. Raises what that raises."""
        with self._lock:
            slot = self._held.setdefault(name, _Slot())
            self._held.move_to_end(name)
            if len(self._held) > self._limit:
                self._held.popitem(last=False)
        with slot.lock:
            if slot.index is None:
                slot.index = read()
            return slot.index


class _Slot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.index: SstableIndex | None = None
