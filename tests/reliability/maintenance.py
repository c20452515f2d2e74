"""Compaction and vacuum, one step at a time, where a test wants them."""

from __future__ import annotations

from typing import Any

from hummock.storage import HummockStorage

BY_HAND: dict[str, Any] = {}    # how a store is opened whose maintenance the test does itself


def compact(storage: HummockStorage, seed: int) -> int:
    """Number of tasks done, until none is picked."""
    return 0


def vacuum(storage: HummockStorage) -> None:
    """Removes all that nobody needs any more."""
