"""How long a writer waits for compaction: a pure function of what level 0 holds, smooth and bounded.

Nothing up to a debt that compaction is expected to have; from there the wait for each byte rises with the square of
the debt, so that writers settle at the rate that compaction keeps up with, and are never stopped.
"""

from __future__ import annotations

from hummock.options import MIB, CompactionOptions
from hummock.version import HummockVersion

SLOWEST_BYTES_PER_SECOND = 4 * MIB      # what writers are held to at the limit and beyond
LONGEST_SECONDS = 1.0                   # of one call
BYTES_SLOWDOWN, BYTES_LIMIT = 3, 8      # of level 0, in base levels: where writers are slowed down, and most


def delay_seconds(version: HummockVersion, options: CompactionOptions, size_bytes: int) -> float:
    """How long to wait before so many bytes are taken in."""
    share = debt_share(len(version.levels[0].runs), version.levels[0].data_bytes, options)
    return min(LONGEST_SECONDS, share * share * size_bytes / SLOWEST_BYTES_PER_SECOND)


def debt_share(runs: int, data_bytes: int, options: CompactionOptions) -> float:
    """0 where writers are not slowed down, 1 where they are slowed down most; the worse of runs and bytes."""
    by_runs = (runs - options.l0_runs_slowdown) / (options.l0_runs_limit - options.l0_runs_slowdown)
    slowdown_bytes = BYTES_SLOWDOWN * options.base_level_bytes
    by_bytes = (data_bytes - slowdown_bytes) / (BYTES_LIMIT * options.base_level_bytes - slowdown_bytes)
    return min(1.0, max(0.0, by_runs, by_bytes))
