"""The priority of threads."""

from __future__ import annotations

import os
import sys
import threading

LOWEST_PRIORITY = 19


def lower_priority(niceness: int) -> None:
    """Lowers the priority of this thread, and of those that it begins, by `niceness` below that of the process. No
    effect where threads have no priority of their own."""
    if niceness and sys.platform == "linux":
        niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, LOWEST_PRIORITY)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
