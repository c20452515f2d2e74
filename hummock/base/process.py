"""Settings that our own processes make at their start. No import makes them: a host application owns its process."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

SWITCH_INTERVAL_SECONDS = 0.0005
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3           # as <malloc.h> has it
MAPPED_BYTES = 256 << 10
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"  # of the environment, read by Arrow itself


def prepare_process(kept_bytes: int = 0) -> None:
    """Sets a GIL switch interval of a tenth of Python's default, and returns freed memory to the system, but for
    `kept_bytes`.

    Beside a busy Python thread, a thread then waits 0.5 ms to reacquire the GIL, not 5; and resident memory follows the
    stores' budgets. An application that embeds a store may call it too.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    return_freed_memory(max(kept_bytes // 4, MAPPED_BYTES))
    if kept_bytes:
        keep_freed_memory(kept_bytes)


def freeze_objects() -> None:
    """Exempts all objects that exist from garbage collection, those of modules above all.

    With them a collection of all objects takes 60 to 140 ms, in which no other Python thread runs. What is garbage is
    collected first; what becomes garbage in a cycle later stays, so call this before a session begins.
    """
    gc.collect()
    gc.freeze()


def use_system_arrow_pool() -> None:
    """Makes Arrow allocate from now on as the rest of the process does, unless the environment names a memory pool.

    Arrow's default, mimalloc, returns freed pages after 10 ms, so that a stream of chunks writes to pages that are new
    to the process, each of which the system clears: a quarter of the CPU time of an aggregation. Arrays that exist keep
    their pool.
    """
    import pyarrow as pa  # the list of commands does without

    if ARROW_POOL not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())


@cache
def installed_version() -> str:
    """The version of the installed package, or a note that a source tree is run in place. To look it up takes 4 ms."""
    try:
        return importlib.metadata.version("hummock")
    except importlib.metadata.PackageNotFoundError:
        return "(run from its source tree)"


def usable_memory_bytes(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory of the machine, or the limit of the container or control group that this process is in. `cgroups`:
    where that file system is."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):
        found += limits_of_groups(Path("/proc/self/cgroup").read_text(), cgroups)
    return min(found)


def limits_of_groups(text: str, cgroups: Path) -> Iterator[int]:
    """Bytes that control groups allow, of version 2 or 1, and those around them. `text`: as /proc/self/cgroup names
    them."""
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        folder = cgroups / controllers / group.lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(cgroups / controllers):
                with suppress(OSError, ValueError):         # there is none, or it is "max"
                    name = "memory.limit_in_bytes" if controllers else "memory.max"
                    yield int((each / name).read_text())


def peak_memory_bytes() -> int:
    """The most memory that this process has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10  # in KiB but there


def return_freed_memory(mapped_bytes: int = MAPPED_BYTES) -> bool:
    """Makes the allocator unmap freed allocations of at least `mapped_bytes`; whether it supports that.

    The GNU allocator maps large allocations one by one and unmaps them when freed; but freeing the first one raises its
    threshold, up to 32 MiB, and from then on smaller ones come from heaps that live allocations in between keep from
    shrinking. A writer with 65 MB of budgets, over a store at a hundredth of a disk's speed, peaked at 129 MB that way,
    at 45 MB with a fixed threshold, at 92 MB with two heaps only.

    This affects all allocations of the process and costs page faults for large ones, so no import does it: a process
    whose memory must stay within the stores' budgets calls it before it opens one. `prepare_process` does.
    """
    return _set_allocator(M_MMAP_THRESHOLD, mapped_bytes)


def keep_freed_memory(kept_bytes: int) -> bool:
    """Makes the allocator keep up to `kept_bytes` that were freed, in allocations below the size at which it maps each;
    whether it supports that.

    For a process that allocates as much again and again: pages that are new to it cost as much as copying them several
    times. Memory of Arrow's own allocators is not counted, nor that of this package's pool of buffers.
    """
    return _set_allocator(M_TRIM_THRESHOLD, kept_bytes)


def _set_allocator(option: int, size: int) -> bool:
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and library.mallopt(option, size) == 1
