"""Every knob of the stream floor in one immutable value; the unit is in each name."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hummock.errors import InvalidOption
from hummock.options import MS_LIMIT, check_range

ROWS_LIMIT = 1 << 40
BYTES_LIMIT = 1 << 62
RANGES = {
    "barrier_interval_ms": (1, MS_LIMIT),
    "checkpoint_frequency": (1, 1 << 20),
    "in_flight_barriers": (1, 1 << 16),
    "barrier_timeout_ms": (10, MS_LIMIT),
    "recovery_attempts": (1, 1 << 16),
    "recovery_backoff_ms": (0, MS_LIMIT),
    "chunk_rows": (2, 1 << 24),
    "channel_permits_rows": (1, ROWS_LIMIT),
    "checkpoint_rows": (0, ROWS_LIMIT),
    "statement_rows": (1, ROWS_LIMIT),
    "aggregation_cache_bytes": (1, BYTES_LIMIT),
    "aggregation_flush_groups": (1, ROWS_LIMIT),
    "column_cache_bytes": (0, BYTES_LIMIT),
    "snapshot_slice_rows": (1, ROWS_LIMIT),
    "failed_job_history_ms": (0, MS_LIMIT),
}
"""The least and the greatest value of each number."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Limits and intervals of a session's jobs, each within its range of RANGES; InvalidOption names the field."""

    barrier_interval_ms: int = 1_000
    """Time between two barriers when nobody asks for one sooner."""
    checkpoint_frequency: int = 1
    """Every n-th barrier is a checkpoint; DDL and FLUSH make theirs one."""
    in_flight_barriers: int = 4
    """Barriers that may be between injection and commit at once; the next one waits."""
    barrier_timeout_ms: int = 300_000
    """How long a barrier may stay uncollected before recovery begins."""
    recovery_attempts: int = 5
    """Recoveries in a row without one committed epoch before the session gives up."""
    recovery_backoff_ms: int = 20
    """Wait before the second recovery in a row; doubled each time, at most 5 s."""
    chunk_rows: int = 4_096
    """Most rows in one chunk; two at least, so that the halves of an update fit."""
    channel_permits_rows: int = 32_768
    """Rows that may wait in one channel; a barrier never waits for them."""
    checkpoint_rows: int = 0
    """A source asks for a barrier after this many rows and waits for it; 0: it never asks."""
    statement_rows: int = 1_000_000
    """Most rows one INSERT may carry; it lies within one epoch whole."""
    aggregation_cache_bytes: int = 256 << 20
    """Memory of one aggregation's groups; beyond it clean groups are evicted at barriers."""
    aggregation_flush_groups: int = 1_000_000
    """Dirty groups of one aggregation after which its changes are emitted before the barrier."""
    sources_paused: bool = False
    """Sources read nothing until `Session.resume()`, so that views can be made before the first row."""
    column_cache_bytes: int = 64 << 20
    """Columns of whole tables that queries of a session remember, as they are at a committed epoch; 0: none."""
    snapshot_slice_rows: int = 65_536
    """Rows that a backfill reads from the snapshot between two looks at its upstream."""
    failed_job_history_ms: int = 3_600_000
    """How long the changes are kept that a job which failed has not seen; a later RESUME computes it anew."""
    spark_master: str = ""
    """Where statements get the Spark they ask for if this process has no Spark session: local[2], ...; "": nowhere."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if kind is int:
                check_range(field.name, value, *RANGES[field.name])
            elif type(value) is not kind:
                raise InvalidOption(field.name, value, "True or False" if kind is bool else "a text")
