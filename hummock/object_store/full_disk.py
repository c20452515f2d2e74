"""Recognizes errors of a full disk."""

from __future__ import annotations

import errno

NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: OSError) -> bool:
    """Whether space or quota is exhausted."""
    return error.errno in NUMBERS


def describe(error: OSError) -> str:
    """Name and text, e.g. `ENOSPC: No space left on device`."""
    return f"{errno.errorcode.get(error.errno or 0, 'OSError')}: {error.strerror or error}"
