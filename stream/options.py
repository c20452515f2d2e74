"""All options of the streaming engine in one immutable value; each name contains its unit."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hummock.base.process import usable_memory_bytes
from hummock.errors import InvalidOption
from hummock.options import MIB, MS_LIMIT, StorageKeywords, check_range

TASK_MEMORY_BYTES = 512 * MIB
"""Of rows that a task of a bulk load buffers, unless the load says otherwise."""
TASK_CACHE_BYTES = 256 * MIB
"""At most, of the state that the executors of one Spark task have in memory."""
NAME_PREFIXES = 16
"""Of the objects of a bulk load or backfill: a bucket serves a few thousand requests a second for each."""

CACHE_SHARE = 4     # of the memory that is usable, where the options do not say how much
ROWS_LIMIT = 1 << 40
BYTES_LIMIT = 1 << 62
LEAST_QUERY_BYTES = 1 << 20
RANGES = {
    "barrier_interval_ms": (1, MS_LIMIT),
    "checkpoint_frequency": (1, 1 << 20),
    "in_flight_barriers": (1, 1 << 16),
    "barrier_timeout_ms": (10, MS_LIMIT),
    "recovery_attempts": (1, 1 << 16),
    "recovery_backoff_ms": (0, MS_LIMIT),
    "parallelism": (0, 1_024),
    "chunk_rows": (2, 1 << 24),
    "split_discovery_ms": (0, MS_LIMIT),
    "watermark_idle_ms": (1, MS_LIMIT),
    "channel_permits_rows": (1, ROWS_LIMIT),
    "checkpoint_rows": (0, ROWS_LIMIT),
    "statement_rows": (1, ROWS_LIMIT),
    "ingest_bytes": (1, BYTES_LIMIT),
    "transaction_bytes": (1, BYTES_LIMIT),
    "inbox_poll_ms": (0, MS_LIMIT),
    "state_write_bytes": (1, BYTES_LIMIT),
    "state_cache_bytes": (0, BYTES_LIMIT),
    "aggregation_flush_groups": (1, ROWS_LIMIT),
    "column_cache_bytes": (0, BYTES_LIMIT),
    "query_memory_bytes": (0, BYTES_LIMIT),
    "query_disk_bytes": (0, BYTES_LIMIT),
    "snapshot_slice_rows": (1, ROWS_LIMIT),
    "recursion_rounds": (1, ROWS_LIMIT),
    "recursion_rows": (1, ROWS_LIMIT),
    "detached_creation_bytes": (0, BYTES_LIMIT),
    "failed_job_history_ms": (0, MS_LIMIT),
    "driver_rows": (0, ROWS_LIMIT),
    "epoch_rows": (1, ROWS_LIMIT),
    "task_rows": (1, ROWS_LIMIT),
    "metrics_port": (-1, 65_535),
}
"""Minimum and maximum of each numeric option."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Limits and intervals of a session's jobs.

        stream.connect("memory://", barrier_interval_ms=250, parallelism=2).close()

    Each is within its range in RANGES; InvalidOption names the field."""

    barrier_interval_ms: int = 1_000
    """Time between two barriers, unless one is requested sooner."""
    checkpoint_frequency: int = 1
    """Every n-th barrier is a checkpoint, and so is every barrier of a DDL or FLUSH."""
    in_flight_barriers: int = 4
    """Maximum number of barriers between injection and commit; the next one waits."""
    barrier_timeout_ms: int = 300_000
    """How long a barrier may stay uncollected before recovery begins."""
    recovery_attempts: int = 5
    """Consecutive recoveries without a committed epoch before the session ends with RecoveryFailed."""
    recovery_backoff_ms: int = 20
    """Wait before the second consecutive recovery; doubled each time, at most 5 s."""
    parallelism: int = 0
    """Actors of each fragment of a job that can have several, unless its own setting says otherwise; 0: as many as the
    machine has cores."""
    chunk_rows: int = 65_536
    """Maximum rows of a chunk; at least two, so that both halves of an update fit. Wide rows come in smaller chunks,
    and a source reads no more at once than its actor processes in tens of milliseconds."""
    split_discovery_ms: int = 2_000
    """Time between two looks for new splits of a connector, such as new files of a directory; 0: none."""
    watermark_idle_ms: int = 30_000
    """A split of a source that has brought no row for so long does not hold the source's watermark back."""
    channel_permits_rows: int = 131_072
    """Maximum rows queued in one channel; a barrier never waits for permits."""
    checkpoint_rows: int = 0
    """A source requests a barrier after this many rows and waits for it; 0: never."""
    statement_rows: int = 1_000_000
    """Maximum rows of one INSERT, all of which belong to one epoch."""
    ingest_bytes: int = 256 << 20
    """Maximum bytes, in memory, of a batch of a streaming writer or a request of another process, all of which belong
    to one epoch."""
    transaction_bytes: int = 64 << 20
    """Maximum bytes, in memory, of the changes that a transaction buffers until COMMIT; a statement counts as 1 KiB
    besides its rows."""
    inbox_poll_ms: int = 1_000
    """Time between two looks for requests of other processes, while there are none; 0: none are carried out. A look is
    one read of the meta store."""
    state_write_bytes: int = 256 << 20
    """Memory for what all executors wrote to their state tables within the epoch; beyond it the larger ones hand their
    writes to the store before the barrier, and so does each table beyond 64 MiB."""
    state_cache_bytes: int = 0
    """Memory for the state that all executors keep: groups, rows of joins, first rows of top-n, last rows of window
    functions; 0: a quarter of the memory of the machine, or of the container. Beyond it those that have more than
    their equal part evict at barriers what was looked up longest ago, and read it from the store when it is needed."""
    aggregation_flush_groups: int = 1_000_000
    """Dirty groups of one actor of an aggregation beyond which its changes are emitted before the barrier; where few
    groups change twice in an epoch, from 65,536 on."""
    allow_user_functions: bool = False
    """Whether the Python text of user functions may run in this session: functions can be created and called, and a
    store whose views call some can be opened. The text is part of the store, so whoever can write a bucket can have
    any code run, with the rights of the process, wherever it is opened: by a view as the session begins, before any
    statement. So it is not allowed unless somebody who trusts all writers of the store says so."""
    replacement_scans: bool = True
    """Whether a FROM that names nothing of the catalog finds frames among the variables of the program that executes
    the statement."""
    sources_paused: bool = False
    """Sources are paused until `Session.resume()`, so that views can be created before the first row."""
    column_cache_bytes: int = 64 << 20
    """Cache of whole table columns at a committed epoch, for the queries of a session; 0: none."""
    query_memory_bytes: int = 0
    """Memory for the rows that queries hold, of all queries of a session together, and the greatest result of one; 0: a
    quarter of the memory of the machine, or of the container; less than 1 MiB counts as 1 MiB. Sorts, joins,
    aggregations and window functions over more rows write them to temporary files."""
    query_disk_bytes: int = 0
    """Of these files; 0: half of what is free in their directory when the first one is written."""
    query_directory: str = ""
    """Where these files are, which have no names and are gone with the process; "": where the system has temporary
    files."""
    snapshot_slice_rows: int = 65_536
    """Rows that a backfill reads from the snapshot between two polls of its upstream."""
    recursion_rounds: int = 100_000
    """Rounds of a WITH RECURSIVE in a query."""
    recursion_rows: int = 10_000_000
    """Rows of a WITH RECURSIVE in a query, in all rounds together; they are in memory."""
    detached_creation_bytes: int = 32 << 20
    """Stored bytes of its tables from which on a view is created apart from the graph, whose barriers then do not wait
    for it; a view over less is ready sooner within it. A 4,096th of it counts where a row may have many partners in a
    join."""
    failed_job_history_ms: int = 3_600_000
    """How long the changes that a failed job has not read are kept; a later RESUME rebuilds the job."""
    driver_rows: int = 30_000
    """With a Spark engine: an epoch of up to so many rows runs in the process of the driver, where it takes less time
    than a Spark job to start; 0: none does."""
    epoch_rows: int = 1_000_000
    """With a Spark engine: rows that each reader of a source, a thread of a task, reads in one epoch, at most."""
    task_rows: int = 200_000
    """With a Spark engine: rows of an epoch for which one more task pays, for each thread of a task: a second stage
    takes some 60 ms, and to send a row 0.05 µs."""
    system_arrow_pool: bool = True
    """Arrow allocates by the allocator of the process from the first session on, in all of the process, see
    `hummock.base.process.use_system_arrow_pool`."""
    metrics_port: int = -1
    """Port on 127.0.0.1 at which the session serves its metrics to Prometheus; 0: any free one, see
    `Session.metrics_url`; -1: none."""
    spark_master: str = ""
    """Spark master for statements that need Spark, if this process has no Spark session: local[2], ...; "": none."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if kind is int:
                check_range(field.name, value, *RANGES[field.name])
            elif type(value) is not kind:
                raise InvalidOption(field.name, value, "True or False" if kind is bool else "a text")


class SessionKeywords(StorageKeywords, total=False):
    """The fields of StreamOptions, StorageOptions and CompactionOptions as keyword arguments of `connect`."""

    barrier_interval_ms: int
    checkpoint_frequency: int
    in_flight_barriers: int
    barrier_timeout_ms: int
    recovery_attempts: int
    recovery_backoff_ms: int
    parallelism: int
    chunk_rows: int
    split_discovery_ms: int
    watermark_idle_ms: int
    channel_permits_rows: int
    checkpoint_rows: int
    statement_rows: int
    ingest_bytes: int
    transaction_bytes: int
    inbox_poll_ms: int
    state_write_bytes: int
    state_cache_bytes: int
    aggregation_flush_groups: int
    allow_user_functions: bool
    replacement_scans: bool
    sources_paused: bool
    column_cache_bytes: int
    query_memory_bytes: int
    query_disk_bytes: int
    query_directory: str
    snapshot_slice_rows: int
    recursion_rounds: int
    recursion_rows: int
    detached_creation_bytes: int
    failed_job_history_ms: int
    driver_rows: int
    epoch_rows: int
    task_rows: int
    system_arrow_pool: bool
    metrics_port: int
    spark_master: str
    last_level: int
    base_level_bytes: int
    level_multiplier: int
    l0_runs: int
    l0_base_bytes: int
    l0_most_bytes: int
    l0_runs_slowdown: int
    l0_runs_limit: int
    task_bytes: int
    task_files: int
    task_runs: int
    large_task_bytes: int
    range_bytes: int
    running_tasks: int
    stale_percent: int
    history_ms: int
    task_lease_ms: int
    task_stall_ms: int
    task_tries: int
    task_retry_ms: int
    tasks_remembered: int
    threads: int
    memory_bytes: int
    codecs: tuple[str, ...]


def cache_bytes_of(options: StreamOptions) -> int:
    """For the state of all executors of a session."""
    return options.state_cache_bytes or usable_memory_bytes() // CACHE_SHARE


def task_cache_bytes(options: StreamOptions) -> int:
    """For the state of all executors of a Spark task, of which a machine runs several."""
    return min(options.state_cache_bytes or TASK_CACHE_BYTES, TASK_CACHE_BYTES)


def query_limits(options: StreamOptions) -> tuple[int, int, str]:
    """Of the queries of a session, as `QueryMemory` takes them."""
    memory_bytes = options.query_memory_bytes and max(options.query_memory_bytes, LEAST_QUERY_BYTES)
    return memory_bytes, options.query_disk_bytes, options.query_directory
