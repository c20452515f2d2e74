"""What the system says of a disk that has no room."""

from __future__ import annotations

import errno

NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: OSError) -> bool:
    """Whether there was no space, or no quota."""
    return error.errno in NUMBERS


def describe(error: OSError) -> str:
    """By name and in words: `ENOSPC: No space left on device`."""
    return f"{errno.errorcode.get(error.errno or 0, 'OSError')}: {error.strerror or error}"
