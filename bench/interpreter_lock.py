"""The share of CPU time that is spent with the interpreter's lock held, sampled by CPU time (interpreter_lock.c).

Samples of wall time would count a thread that holds the lock while it waits for a core.
"""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
import tempfile
from pathlib import Path

TICK_MICROSECONDS = 1_000  # Linux ticks a few times less often


class LockShare:
    """Samples this process inside; afterwards `ticks` of CPU time, of which `held` with the lock."""

    def __init__(self) -> None:
        self.ticks = self.held = 0
        with tempfile.TemporaryDirectory() as directory:
            built = Path(directory) / "interpreter_lock.so"
            command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}",
                       str(Path(__file__).with_suffix(".c")), "-o", str(built)]
            subprocess.run(command, check=True)
            self._library = ctypes.CDLL(str(built))

    def __enter__(self) -> LockShare:
        self._library.begin(ctypes.c_long(TICK_MICROSECONDS))
        return self

    def __exit__(self, *caught: object) -> None:
        counted = (ctypes.c_long * 2)()
        self._library.end(counted)
        self.ticks, self.held = counted
