"""The C allocator of a process: whether freed memory goes back to the system.

The GNU allocator maps large pieces one by one and gives them back when they are freed; but the first such piece
raises the size that it calls large, up to 32 MiB, and from then on pieces below come from heaps that what lives
between them keeps from shrinking. A writer with 65 MB of budgets, over a store at a hundredth of a disk's speed,
peaked at 129 MB so, at 45 MB with the size held, at 92 MB with two heaps alone.
"""

from __future__ import annotations

import ctypes

M_MMAP_THRESHOLD = -3           # as <malloc.h> has it
MAPPED_BYTES = 256 << 10


def return_freed_memory(mapped_bytes: int = MAPPED_BYTES) -> bool:
    """From here on every freed piece of so many bytes goes back to the system; whether the allocator can do so.

    It holds for the whole process, whoever allocates, and costs page faults for large pieces, so no import does it:
    a process whose memory must stay within the stores' budgets calls it before it opens one. Processes of ours do
    (`hummock.base.process`).
    """
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(M_MMAP_THRESHOLD, mapped_bytes) == 1
