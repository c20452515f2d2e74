"""Crew: threads that work for one attempt. Nobody waits for one to begin: beside others that takes turns of the GIL."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


class Crew:
    """For one thread that starts and joins. What is given to it raises nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._ended = threading.Lock()      # held while somebody works

    def start(self, work: Callable[[], object]) -> None:
        """`work()` on a thread of its own."""
        with self._lock:
            if self._working == 0:
                self._ended.acquire()
            self._working += 1
        try:
            _thread.start_new_thread(self._run, (work,))
        except BaseException:
            self._leave()
            raise

    def join(self) -> None:
        """All that was started has ended."""
        with self._ended:
            pass

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._working -= 1
            if self._working == 0:
                self._ended.release()
