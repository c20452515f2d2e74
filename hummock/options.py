"""All options, with the unit in each name; every value is validated when an options object is created.

`StorageOptions` are local to a process and may differ between processes of one store: what a reader needs in order to
understand a file (codec, filter policy) is written into the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from hummock.errors import InvalidOption, UnknownOption

KIB = 1 << 10
MIB = 1 << 20
ARROW_BYTES_LIMIT = (1 << 31) - 1       # limit of int32 offsets
MS_LIMIT = 1 << 42                      # longest wait of a thread that the platform supports, 139 years
CODECS = ("none", "lz4", "zstd")
INLINE_BYTES = 64 * KIB                 # most of a commit that is stored in the version itself
FILTER_POLICIES = ("blocked_bloom", "pybloom", "none")


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How one process writes, caches and reads."""

    block_bytes: int = 64 * KIB             # uncompressed target of a block
    sstable_bytes: int = 64 * MIB           # target of one .data object
    filter_bits_per_key: int = 10
    filter_policy: str = "blocked_bloom"
    codec: str = "lz4"                      # of bulk loads
    flush_codec: str = "none"               # of the files of commits, which compaction replaces by compressed ones
    block_cache_bytes: int = 256 * MIB
    meta_cache_bytes: int = 64 * MIB        # decoded indexes and filters; any excess is taken from the block cache
    shared_buffer_bytes: int = 256 * MIB    # writes that are not uploaded yet; beyond it writers wait
    inline_bytes: int = INLINE_BYTES        # commits of at most that are stored in the version itself; 0: none is
    flush_bytes: int = 32 * MIB             # of an epoch, from which they are uploaded before it ends
    upload_bytes: int = 128 * MIB           # finished files that are being uploaded
    uploads_in_flight: int = 2              # flushes and syncs that build files at the same time
    flush_threads: int = 1                  # background flushes before the buffer is full; 0: writers flush
    prefetch_bytes: int = 4 * MIB           # read ahead of a scan
    scan_batch_rows: int = 8192
    scan_batch_bytes: int = 8 * MIB
    disk_cache_bytes: int = 0               # of blocks read from a remote store; 0: no disk cache
    disk_cache_directory: str = ""
    watermark_interval_ms: int = 5_000      # a table registers a key watermark at most so often, by the time of epochs
    refresh_ms: int = 1_000                 # polling interval for versions of other processes
    wait_epoch_ms: int = 10_000             # default wait of a read for an epoch

    def __post_init__(self) -> None:
        zero = ("disk_cache_bytes", "flush_threads", "inline_bytes", "watermark_interval_ms")
        _check_positive(self, skip=("filter_policy", "codec", "flush_codec", "disk_cache_directory", *zero))
        for name in zero:
            check_range(name, getattr(self, name), 0, 1 << 62)
        if self.disk_cache_bytes and not self.disk_cache_directory:
            raise InvalidOption("disk_cache_directory", "", "a directory, where disk_cache_bytes is set")
        check_range("inline_bytes", self.inline_bytes, 0, INLINE_BYTES)
        check_range("block_bytes", self.block_bytes, 1, 64 * MIB)
        check_range("scan_batch_bytes", self.scan_batch_bytes, 1, ARROW_BYTES_LIMIT)
        check_range("filter_bits_per_key", self.filter_bits_per_key, 1, 64)
        for name in ("codec", "flush_codec"):
            if getattr(self, name) not in CODECS:
                raise InvalidOption(name, getattr(self, name), f"one of {', '.join(CODECS)}")
        _check_filter_policy(self.filter_policy)


class StorageKeywords(TypedDict, total=False):
    """The fields of StorageOptions as keyword arguments."""

    block_bytes: int
    sstable_bytes: int
    filter_bits_per_key: int
    filter_policy: str
    codec: str
    flush_codec: str
    block_cache_bytes: int
    meta_cache_bytes: int
    shared_buffer_bytes: int
    inline_bytes: int
    flush_bytes: int
    upload_bytes: int
    uploads_in_flight: int
    flush_threads: int
    prefetch_bytes: int
    scan_batch_rows: int
    scan_batch_bytes: int
    disk_cache_bytes: int
    disk_cache_directory: str
    watermark_interval_ms: int
    refresh_ms: int
    wait_epoch_ms: int


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Retries of one object-store call: at most `attempts` tries within `deadline_ms` in all.

    The wait before try n is a random share of min(max_delay_ms, first_delay_ms * 2**n).
    """

    attempts: int = 32
    first_delay_ms: int = 20
    max_delay_ms: int = 2_000
    deadline_ms: int = 30_000
    connect_ms: int = 5_000         # a try fails if the store does not accept a connection, or a part, for that long
    idle_ms: int = 10_000           # ... or sends nothing for that long

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True)
class MetaOptions:
    """How the manager keeps its metadata."""

    lease_ms: int = 30_000                  # a process that does not renew within this loses its pins
    checkpoint_deltas: int = 64             # deltas kept before they are folded into a checkpoint
    commits_remembered: int = 64            # answers of the newest commits, for repeated calls
    loads_remembered: int = 1_000           # answers of the newest bulk loads, by which repeated loads are recognised
    transaction_attempts: int = 16          # tries against other processes before giving up
    acknowledge_ms: int = 30_000            # wait of a commit for slow subscribers
    busy_timeout_ms: int = 10_000           # wait for another process inside the database
    log_checkpoint_records: int = 64        # records of a log in a bucket between two of its checkpoints
    log_grace_ms: int = 120_000             # what its checkpoints replaced is kept that much longer

    def __post_init__(self) -> None:
        _check_positive(self)
        check_range("lease_ms", self.lease_ms, 20, MS_LIMIT)
        check_range("transaction_attempts", self.transaction_attempts, 2, 1 << 20)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The shape of the tree; one set for a store, in the process whose manager picks tasks.

    Sizes are of `.data` objects. Level 0 holds the runs that commits created; the base level is the first below it that
    holds data, chosen so that the last level is `level_multiplier` times the one above it.
    """

    last_level: int = 6
    base_level_bytes: int = 2 << 30         # least target of a level above the last one
    level_multiplier: int = 10
    l0_runs: int = 8                        # so many runs of similar size in level 0 become one
    l0_base_bytes: int = 128 * MIB          # level 0 is merged down from this size on, and that of the base level (raw)
    l0_most_bytes: int = 8 << 30            # and from this size on in any case (raw)
    l0_runs_slowdown: int = 48              # from here on writers are delayed, gradually
    l0_runs_limit: int = 96                 # writers are delayed most
    task_bytes: int = 2 << 30               # maximum input of one task, unless it must take more
    task_files: int = 256
    task_runs: int = 64                     # runs merged at once
    large_task_bytes: int = 2 << 30         # larger tasks are left to a compactor on Spark, while there is one
    range_bytes: int = 256 * MIB            # input of one range of a task
    sstable_bytes: int = 64 * MIB           # target of one output
    block_bytes: int = 64 * KIB             # uncompressed target of a block
    filter_bits_per_key: int = 10
    filter_policy: str = "blocked_bloom"
    running_tasks: int = 8
    stale_percent: int = 40                 # share of tombstones and stale rows from which a file is rewritten
    history_ms: int = 0                     # unpinned epochs stay readable this long, which slows scans
    task_lease_ms: int = 30_000             # a task without a heartbeat for that long is reassigned
    task_stall_ms: int = 600_000            # a task without progress for that long is cancelled
    task_tries: int = 4                     # attempts at one task before it is given up and picked anew
    task_retry_ms: int = 1_000              # wait after the first failed attempt, doubled by each further one
    tasks_remembered: int = 256             # answers of the newest reports, for repeated calls
    threads: int = 2                        # subcompactions that run at once in one process
    memory_bytes: int = 512 * MIB           # read-ahead and unfinished outputs of one process
    codecs: tuple[str, ...] = ("none", "lz4")   # of outputs by level, the last one for all deeper ones

    def __post_init__(self) -> None:
        _check_positive(self, skip=("codecs", "history_ms", "filter_policy"))
        check_range("block_bytes", self.block_bytes, 1, 64 * MIB)
        check_range("filter_bits_per_key", self.filter_bits_per_key, 1, 64)
        check_range("history_ms", self.history_ms, 0, 1 << 62)
        check_range("last_level", self.last_level, 1, 16)
        check_range("l0_runs", self.l0_runs, 2, self.task_runs)
        check_range("l0_runs_limit", self.l0_runs_limit, self.l0_runs_slowdown + 1, 1 << 20)
        check_range("stale_percent", self.stale_percent, 1, 100)
        _check_filter_policy(self.filter_policy)
        if not isinstance(self.codecs, tuple) or not self.codecs or any(codec not in CODECS for codec in self.codecs):
            raise InvalidOption("codecs", self.codecs, f"some of {', '.join(CODECS)}")

    def codec_of(self, level: int) -> str:
        """How compaction compresses what it writes to a level."""
        return self.codecs[min(level, len(self.codecs) - 1)]


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """How often files that nothing needs are deleted, and how many at once."""

    interval_ms: int = 30_000               # polls of the obsolete list while no file is known to leave
    pause_ms: int = 500                     # between a version that lacks files of the one before and vacuum
    listing_ms: int = 3_600_000             # between two listings of all objects
    grace_ms: int = 3_600_000               # unregistered objects younger than that are left alone
    tombstone_ms: int = 7 * 86_400_000      # tombstones of names are kept at least that long
    page_files: int = 10_000                # files that are checked and removed in one transaction
    objects_per_run: int = 1_000_000        # listed per run; the next run continues after them
    deleted_at_once: int = 1_000            # objects per call

    def __post_init__(self) -> None:
        _check_positive(self, skip=("grace_ms", "tombstone_ms"))
        for name in ("grace_ms", "tombstone_ms"):
            check_range(name, getattr(self, name), 0, 1 << 62)


def check_known(given: Mapping[str, Any], *kinds: type) -> None:
    """Raises `UnknownOption` for the first name that is no field of these classes of options."""
    known = sorted({field.name for kind in kinds for field in fields(kind)})
    for name, value in given.items():
        if name not in known:
            raise UnknownOption(name, value, tuple(known))


def _check_positive(options: object, skip: tuple[str, ...] = ()) -> None:
    for field in fields(options):           # type: ignore[arg-type]
        if field.name not in skip:
            high = MS_LIMIT if field.name.endswith("_ms") else 1 << 62
            check_range(field.name, getattr(options, field.name), 1, high)


def _check_filter_policy(name: object) -> None:
    if name not in FILTER_POLICIES:
        raise InvalidOption("filter_policy", name, f"one of {', '.join(FILTER_POLICIES)}")


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Raises `InvalidOption` unless the value of option `name` is an integer of `low` .. `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidOption(name, value, f"an integer between {low} and {high}")
