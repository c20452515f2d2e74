"""What a process of ours sets for itself at its start. No import does it: a host's process is the host's."""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys

SWITCH_INTERVAL_SECONDS = 0.0005
M_MMAP_THRESHOLD = -3           # as <malloc.h> has it
MAPPED_BYTES = 256 << 10


def prepare_process() -> None:
    """Threads take turns ten times as often as Python's default has them, and freed memory goes back to the system.

    Beside a busy Python thread whoever comes back from a call without the GIL then waits 0.5 ms for it, not 5; and
    resident memory follows the stores' budgets. An application that embeds a store may call it too.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    return_freed_memory()


def installed_version() -> str:
    """The version of the installed package; of a source tree that is run in place, that it is one."""
    try:
        return importlib.metadata.version("hummock")
    except importlib.metadata.PackageNotFoundError:
        return "(run from its source tree)"


def return_freed_memory(mapped_bytes: int = MAPPED_BYTES) -> bool:
    """From here on every freed piece of so many bytes goes back to the system; whether the allocator can do so.

    The GNU allocator maps large pieces one by one and gives them back when they are freed; but the first such piece
    raises the size that it calls large, up to 32 MiB, and from then on pieces below come from heaps that what lives
    between them keeps from shrinking. A writer with 65 MB of budgets, over a store at a hundredth of a disk's speed,
    peaked at 129 MB so, at 45 MB with the size held, at 92 MB with two heaps alone.

    It holds for the whole process, whoever allocates, and costs page faults for large pieces, so no import does it:
    a process whose memory must stay within the stores' budgets calls it before it opens one. `prepare_process` does.
    """
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(M_MMAP_THRESHOLD, mapped_bytes) == 1
