"""What memory itself costs here: random reads of one cache line, each waiting for the one before, among so many bytes.

A read that must wait for far memory can grow no less with the data than these do. The lines lie in huge pages, as
those of the store do; 100,000 fixed ones are read round after round, as many as a bench has keys.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

LINES, ROUNDS = 100_000, 5

SOURCE = r"""
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t step(uint64_t x) { x ^= x << 13; x ^= x >> 7; return x ^ x << 17; }

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static size_t line_at(uint64_t x, size_t lines) {
    return 64 * (size_t)((unsigned __int128)(x * 0x9E3779B97F4A7C15ull) * lines >> 64);
}

double chase(size_t bytes, int lines, int rounds) {
    const size_t huge = 2 << 20;
    uint8_t *mapped = mmap(0, bytes + 2 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
    uint64_t x, first = 88172645463325252ull, loaded = 0;
    double begun = 0, spent;
    int i, round;
    if (mapped == MAP_FAILED) return -1;
    at = (uint8_t *)(((uintptr_t)mapped + huge - 1) & ~(uintptr_t)(huge - 1));
    madvise(at, bytes, MADV_HUGEPAGE);
    for (size_t page = 0; page < bytes; page += 4096) memset(at + page, 0, 64);
    for (round = 0; round <= rounds; round++) {         /* the first for warmth */
        if (round == 1) begun = seconds();
        for (x = first, i = 0; i < lines; i++) {
            x = step(x) + loaded;                         /* loaded is 0, which only the line knows */
            loaded = *(volatile uint64_t *)(at + line_at(x, bytes / 64));
        }
    }
    spent = seconds() - begun;
    munmap(mapped, bytes + 2 * huge);
    return spent / rounds / lines;
}
"""


def chase_ns(sizes: list[int]) -> list[float]:
    """Nanoseconds of a dependent read among each of `sizes` bytes; by the C compiler that builds the store."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "chase.c", Path(folder) / "chase.so"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        run = ctypes.CDLL(str(library)).chase
    run.restype, run.argtypes = ctypes.c_double, (ctypes.c_size_t, ctypes.c_int, ctypes.c_int)
    return [1e9 * run(size, LINES, ROUNDS) for size in sizes]
