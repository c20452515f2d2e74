"""Memory of this process as the system sees it, and who gives it out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip
PIECE_BYTES = 64 << 20


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def status(field: str) -> int:
    """`VmRSS`, the bytes in use, or `VmHWM`, the most that were."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def peak_growth() -> Callable[[], int]:
    """Asks how far memory has risen since now, at its highest; what ran before in this process does not count."""
    Path("/proc/self/clear_refs").write_text("5")       # the most that was in use is what is in use now
    before = status("VmRSS")
    return lambda: status("VmHWM") - before


def malloc_counts() -> tuple[int, int]:
    """Bytes that the GNU allocator has given out, and how many mappings of their own are among them."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    told = mallinfo2()
    return told.uordblks + told.hblkhd, told.hblks


def has_gnu_malloc() -> bool:
    """Whether malloc is the GNU allocator's and counts: a sanitizer stands before it, other C libraries have none."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return False
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before, _ = malloc_counts()
    piece = libc.malloc(ctypes.c_size_t(PIECE_BYTES))
    after, _ = malloc_counts()
    libc.free(piece)
    return after - before > PIECE_BYTES // 2
