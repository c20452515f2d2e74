"""CPU seconds of a process and of all that it started: a driver, its JVM, its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """Of this process and all that it started, those that ended included."""
    _, spent = _processes()
    return sum(spent.get(process, 0.0) for process in process_tree(os.getpid()))


def process_tree(root: int) -> list[int]:
    """The process `root` and all below it that run."""
    children, _ = _processes()
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process, [])
    return found


def _processes() -> tuple[dict[int, list[int]], dict[int, float]]:
    """The children of each process, and the CPU seconds of each with its children that ended."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:         # it ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    return children, spent


def measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(seconds, CPU seconds, result)."""
    cpu, began = tree_cpu_seconds(), time.perf_counter()
    result = work()
    return time.perf_counter() - began, tree_cpu_seconds() - cpu, result
