"""What a piece of work costs in calls: the hot path's must not grow with the rows of a chunk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], Any]) -> int:
    """How many Python and C functions `work` calls in this thread, as sys.setprofile sees them."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
