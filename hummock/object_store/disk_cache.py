"""DiskCache: aligned windows of immutable objects, kept in two files of a directory up to a budget of bytes.

`windows` holds them in slots of one size, `index` one record per slot: the window's identity, length and checksum.
Neither is ever synced: a record that does not match its own checksum, or a window that does not match its record,
counts as absent. So a crash, another program or a bad disk only cause cache misses. Eviction is LRU; after a restart
the initial order is that of writing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hummock.base.checksum import crc32c_of
from hummock.errors import DiskCacheInUse, InvalidOption
from hummock.object_store.base import is_sstable_name, sstable_name_of
from hummock.options import KIB

WINDOW_BYTES = 128 * KIB
RECORD = struct.Struct("<16sIIQBxxxII")      # name, window, bytes, order of writing, flags, their crc, its own crc
CHECKED_BYTES = RECORD.size - 4
IS_META, IS_LAST = 1, 2
WindowKey = tuple[bytes, bool, int]             # file name, whether of its `.meta`, window number


@dataclass(slots=True)
class Slot:
    """A decoded record."""

    number: int
    size: int
    is_last: bool                           # the object ends with this window
    checksum: int


@dataclass(slots=True)
class DiskCacheCounts:
    """Counts of windows since the cache was opened."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    damaged: int = 0                        # corrupt or unreadable


class DiskCache:
    """Windows of the objects of the store at `url`. Thread safe; used by one process at a time.

    Raises `DiskCacheInUse` if another process uses the directory, `InvalidOption` if it is unusable. Contents cached
    from another store are discarded.
    """

    def __init__(self, directory: str, capacity_bytes: int, url: str):
        self.counts = DiskCacheCounts()
        self.slots = max(1, capacity_bytes // (WINDOW_BYTES + RECORD.size))
        self._lock = threading.Lock()
        self._found: OrderedDict[WindowKey, Slot] = OrderedDict()       # least recently used first
        self._by_name: dict[bytes, set[WindowKey]] = {}
        self._free = list(range(self.slots))
        self._written = 0
        self._is_closed = False
        try:
            folder = Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            self._owner = _open(folder / "owner")
            try:
                fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DiskCacheInUse(str(folder)) from error
            self._windows, self._index = _open(folder / "windows"), _open(folder / "index")
            self._take_over(url.encode())
        except OSError as error:
            raise InvalidOption("disk_cache_directory", directory, f"a directory to write in ({error})") from error

    @property
    def used_bytes(self) -> int:
        return len(self._found) * (WINDOW_BYTES + RECORD.size)

    def get(self, path: str, window: int) -> tuple[bytes, bool] | None:
        """The window of the object, and whether the object ends with it; None: not cached."""
        window_key = _window_key(path, window)
        with self._lock:
            slot = self._found.get(window_key)
            if slot is None or self._is_closed:
                self.counts.misses += 1
                return None
            self._found.move_to_end(window_key)
        try:
            data = os.pread(self._windows, slot.size, slot.number * WINDOW_BYTES)
        except OSError:
            data = b""
        is_sound = len(data) == slot.size and crc32c_of(data) == slot.checksum
        with self._lock:
            if is_sound:
                self.counts.hits += 1
                return data, slot.is_last
            self.counts.misses += 1
            if self._found.get(window_key) is slot:          # else the slot was reused meanwhile
                self.counts.damaged += 1
                self._forget(window_key)
        return None

    def put(self, path: str, window: int, data: memoryview, is_last: bool) -> None:
        """Caches the window in the slot of the least recently used one."""
        window_key, checksum = _window_key(path, window), crc32c_of(data)
        with self._lock:
            if self._is_closed or window_key in self._found:
                return
            if not self._free:
                if not self._found:                     # other threads are writing all slots
                    return
                self._remove(next(iter(self._found)))
                self.counts.evictions += 1
            slot = Slot(self._free.pop(), data.nbytes, is_last, checksum)
            self._written += 1
            record = _record(window_key, slot, self._written)
        try:
            is_written = (os.pwrite(self._windows, data, slot.number * WINDOW_BYTES) == data.nbytes
                          and os.pwrite(self._index, record, slot.number * RECORD.size) == RECORD.size)
        except OSError:
            is_written = False
        with self._lock:
            if is_written and not self._is_closed and window_key not in self._found:
                self._add(window_key, slot)
            else:
                self._free.append(slot.number)

    def forget(self, path: str) -> bool:
        """Drops all windows of the object; whether there were any."""
        name, is_meta, _ = _window_key(path, 0)
        with self._lock:
            window_keys = [window_key for window_key in self._by_name.get(name, ()) if window_key[1] == is_meta]
            for window_key in window_keys:
                self._forget(window_key)
        return bool(window_keys)

    def retain(self, names: Iterable[str]) -> None:
        """Drops all windows of other files."""
        kept = {bytes.fromhex(name) for name in names if is_sstable_name(name)}
        with self._lock:
            for name in self._by_name.keys() - kept:
                for window_key in tuple(self._by_name[name]):
                    self._forget(window_key)

    def close(self) -> None:
        """Releases the directory; its contents remain for the next opening. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                fcntl.flock(self._owner, fcntl.LOCK_UN)         # a write in progress is harmless: windows are checked
                self._found.clear()
                self._by_name.clear()

    def __del__(self) -> None:
        for name in ("_windows", "_index", "_owner"):
            if hasattr(self, name):
                with suppress(OSError):
                    os.close(getattr(self, name))

    def _take_over(self, url: bytes) -> None:
        """Loads the index of an earlier process; empties it if its owner file names another store."""
        owner = f"{WINDOW_BYTES} ".encode() + url
        if os.pread(self._owner, len(owner) + 1, 0) != owner:
            os.ftruncate(self._index, 0)
            os.ftruncate(self._owner, 0)
            os.pwrite(self._owner, owner, 0)
        os.ftruncate(self._windows, self.slots * WINDOW_BYTES)
        os.ftruncate(self._index, self.slots * RECORD.size)
        content = os.pread(self._index, self.slots * RECORD.size, 0)
        read = sorted(entry for number in range(len(content) // RECORD.size)
                      if (entry := _read(content, number)) is not None)
        for order, window_key, number, size, is_last, checksum in read:
            if window_key in self._found:
                self._remove(window_key)
            self._add(window_key, Slot(number, size, is_last, checksum))
            self._written = order
        taken = {slot.number for slot in self._found.values()}
        self._free = [number for number in range(self.slots) if number not in taken]

    def _add(self, window_key: WindowKey, slot: Slot) -> None:
        self._found[window_key] = slot
        self._by_name.setdefault(window_key[0], set()).add(window_key)

    def _forget(self, window_key: WindowKey) -> None:
        """Drops the window from memory and from the index on disk. REQUIRES the lock."""
        with suppress(OSError):
            os.pwrite(self._index, bytes(RECORD.size), self._found[window_key].number * RECORD.size)
        self._remove(window_key)

    def _remove(self, window_key: WindowKey) -> None:
        self._free.append(self._found.pop(window_key).number)
        window_keys = self._by_name[window_key[0]]
        window_keys.discard(window_key)
        if not window_keys:
            del self._by_name[window_key[0]]


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _window_key(path: str, window: int) -> WindowKey:
    name = sstable_name_of(path)
    assert name is not None
    return bytes.fromhex(name), path.endswith(".meta"), window


def _record(window_key: WindowKey, slot: Slot, order: int) -> bytes:
    flags = IS_META * window_key[1] | IS_LAST * slot.is_last
    record = RECORD.pack(window_key[0], window_key[2], slot.size, order, flags, slot.checksum, 0)
    return record[:CHECKED_BYTES] + crc32c_of(record[:CHECKED_BYTES]).to_bytes(4, "little")


def _read(content: bytes, number: int) -> tuple[int, WindowKey, int, int, bool, int] | None:
    """The decoded record `number`, order of writing first; None if there is none."""
    record = content[number * RECORD.size:(number + 1) * RECORD.size]
    name, window, size, order, flags, checksum, own = RECORD.unpack(record)
    if size > WINDOW_BYTES or order == 0 or own != crc32c_of(record[:CHECKED_BYTES]):
        return None
    return order, (name, bool(flags & IS_META), window), number, size, bool(flags & IS_LAST), checksum
