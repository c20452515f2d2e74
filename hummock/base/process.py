"""What a process of ours sets for itself at its start. No import does it: a host's process is the host's."""

from __future__ import annotations

import importlib.metadata
import sys

from hummock.base.allocator import return_freed_memory

SWITCH_INTERVAL_SECONDS = 0.0005


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
