"""System calls on files that not every system has, and what does the same without them."""

from __future__ import annotations

import fcntl
import os

FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS, whose fsync leaves what was written in the cache of the drive."""


def sync_file(descriptor: int) -> None:
    """What was written is durable on return, with the file's size and dates. OSError."""
    if FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, FULL_SYNC)
            return
        except OSError:
            pass  # the file system has none
    os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """What was written is durable on return, and can be read; dates may be older. OSError."""
    if FULL_SYNC is None and hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync_file(descriptor)


def read_into(descriptor: int, target: memoryview, start: int) -> int:
    """Reads from position `start` and returns how many bytes, fewer than fit at the end of the file. OSError."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], start)
    data = os.pread(descriptor, target.nbytes, start)
    target[:len(data)] = data
    return len(data)
