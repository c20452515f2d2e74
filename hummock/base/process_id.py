"""Which process of which machine this is, and whether another one still runs.

A number names a process only together with the boot of the machine, its space of numbers (containers have their own),
and the time at which the process began: numbers are given again.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")
UNKNOWN_START = 0
START_FIELD, STATE_FIELD = 19, 0        # of /proc/<pid>/stat, after the name in parentheses
ENDED_STATES = (b"Z", b"X", b"x")       # a process that has ended and that its parent has not asked for yet


@dataclass(frozen=True, slots=True)
class ProcessId:
    """`host`: its name, to be shown; `machine`: what has the same numbers of processes; `started`: in ticks since the
    boot, UNKNOWN_START where the system does not tell."""

    host: str
    machine: str
    pid: int
    started: int

    def has_ended(self) -> bool:
        """Whether this machine knows that the process runs no more; False for one of another machine."""
        if self.machine != _machine():
            return False
        if not _exists(self.pid):
            return True
        started = _started(self.pid)
        return started is None or UNKNOWN_START != self.started != started


def this_process() -> ProcessId:
    return ProcessId(socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()) or UNKNOWN_START)


@cache
def _machine() -> str:
    with suppress(OSError):
        return f"{BOOT_ID.read_text().strip()} {PID_NAMESPACE.readlink()}"
    return f"{socket.gethostname()} {uuid.getnode():x}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int | None:
    """None: the process has ended; UNKNOWN_START where the system has no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None if BOOT_ID.exists() else UNKNOWN_START
    return None if fields[STATE_FIELD] in ENDED_STATES else int(fields[START_FIELD])
