"""Compiles the preloaded library, starts the fork server under it, and sends it jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("file_calls.c")
ROOT = Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CC", "cc")


class When(IntEnum):
    """When the process is killed, relative to a file call."""

    BEFORE = 0
    TORN = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended, its notes, and a letter for each file call if it was not killed."""

    signal: int
    calls: str
    notes: list[str] = field(default_factory=list)
    result: Any = None
    error: str = ""

    @property
    def was_killed(self) -> bool:
        return self.signal == signal.SIGKILL

    def value(self) -> Any:
        """The result of the work; a failed child fails the test."""
        assert self.signal == 0 and not self.error, f"signal {self.signal}\n{self.error}"
        return self.result


class Children:
    """The fork server; each call of `run` is one child, one at a time."""

    def __init__(self, library: Path):
        preloaded = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()      # a sanitizer must be first
        environment = {**os.environ, "LD_PRELOAD": preloaded}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.fork_server"], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, work: str, root: Path, *, kill_at: int = 0, when: When = When.BEFORE,
            journal: Path | None = None, fail_with: int = 0, times: int = 1, **arguments: Any) -> End:
        """Runs `work` ("module:function") on the store in `root`, killed at file call `kill_at` (0: never).

        With an error number in `fail_with`, `times` calls from there on fail instead, and reads count as calls too.
        """
        job = {"work": work, "root": str(root), "kill_at": kill_at, "when": int(when),
               "journal": str(journal or ""), "fail_with": fail_with, "times": times,
               "arguments": {"directory": str(root), **arguments}}
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line, "the fork server ended"
        end = End(**json.loads(line))
        assert end.signal in (0, signal.SIGKILL), f"{work} ended with {signal.Signals(end.signal).name}"
        return end

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


def can_compile() -> bool:
    return sys.platform == "linux" and shutil.which(COMPILER) is not None


@contextmanager
def started(directory: Path) -> Iterator[Children]:
    """The fork server, with its library compiled into `directory`."""
    library = directory / "file_calls.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"],
                   check=True)
    children = Children(library)
    try:
        yield children
    finally:
        children.close()
