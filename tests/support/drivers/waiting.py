"""Waits for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SOON_SECONDS = 60.0
"""Long for anything that a test waits for, also on a busy machine."""
POLL_SECONDS = 0.003


def eventually(condition: Callable[[], object], message: object = "the condition was not met in time") -> None:
    """Returns once the condition is met. AssertionError after SOON_SECONDS."""
    deadline, tries = time.monotonic() + SOON_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, message
        tries.wait(POLL_SECONDS)
