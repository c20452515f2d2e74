"""Processes that run a function: forked from a server that has imported what they need, in which nothing else runs, so
that each is like a new process but starts in a hundredth of the time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

IMPORTED = ("pandas", "prometheus_client", "relational.sql", "stream.session.statements", "stream.spark.driver",
            "tests.simulation.inbox_child", "tests.simulation.transfer_child")
"""By the server, before it forks."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(IMPORTED))


class Spawned:
    """A process that runs `work(*arguments, link)`: what it sends by `link` is `said`, and `finish` closes the other
    end."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._link, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=work, args=(*arguments, theirs))
        self._process.start()
        theirs.close()

    def ended(self, seconds: float) -> int:
        """The exit code of the process; one that goes on for longer is killed, as -9 says."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def said(self) -> list[str]:
        """What the process has sent since the last call."""
        found = []
        try:
            while self._link.poll():
                found.append(self._link.recv())
        except EOFError:
            pass
        return found

    def finish(self) -> None:
        self._link.close()
