"""Memory of this process, from the operating system and from malloc."""

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
    """`VmRSS`, the resident bytes, or `VmHWM`, their peak."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) * 1024


def peak_growth() -> Callable[[], int]:
    """Resets the peak of resident memory; the result is a function that returns its growth since then."""
    Path("/proc/self/clear_refs").write_text("5")       # resets the peak to the present value
    before = status("VmRSS")
    return lambda: status("VmHWM") - before


def malloc_counts() -> tuple[int, int]:
    """Bytes that the GNU allocator has allocated, and the number of separate mappings among them."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    info = mallinfo2()
    return info.uordblks + info.hblkhd, info.hblks


def has_gnu_malloc() -> bool:
    """Whether malloc is the GNU allocator's and counts: a sanitizer replaces it, other C libraries have no counts."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return False
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before, _ = malloc_counts()
    piece = libc.malloc(ctypes.c_size_t(PIECE_BYTES))
    after, _ = malloc_counts()
    libc.free(piece)
    return after - before > PIECE_BYTES // 2
