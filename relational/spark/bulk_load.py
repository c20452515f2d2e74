"""Bulk load: writes the rows of a DataFrame as files of a table, ready for a commit.

Two Python stages with one shuffle between: tasks encode rows, shuffle them to the partition of their vnode, and sort
and write them there. Only results received by the driver count: one per partition, from whichever attempt finished
first, each of which accounts for every row sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hummock.base.process import installed_version
from hummock.errors import InvalidOption, SparkJobFailed
from hummock.spark.executor_check import check_executors
from hummock.spark.jobs import run_job, slots
from hummock.sstable.info import SstableInfo
from relational.errors import RelationalError
from relational.spark.frame_columns import FrameColumns
from relational.spark.load_encoder import MESSAGES, PARTITION, encode_rows
from relational.spark.load_spec import LoadPart, LoadSpec
from relational.spark.load_writer import ANSWER, write_rows
from relational.spark.row_sorter import SHOWN_KEYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame

OnProgress = Callable[[int, int], None]
PARTITION_BYTES = 256 << 20         # sorted by one task, approximately
UNLIKELY_BYTES = 1 << 55            # a larger estimate is ignored


class RowsRefused(RelationalError, ValueError):
    """Rows that do not fit the table, or that are not all accounted for."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The result of a job: files of one sorted run, durable, not part of any version yet."""

    sstables: tuple[SstableInfo, ...] = ()
    rows_sent: int = 0
    rows_dropped: int = 0
    duplicates: int = 0
    duplicate_keys: tuple[bytes, ...] = ()      # a sample
    spills: int = 0
    seconds: dict[str, float] = field(default_factory=dict)     # of all tasks, by phase


def write_frame(frame: DataFrame, columns: FrameColumns, spec: LoadSpec, *,
                is_cancelled: Callable[[], bool] | None = None, on_progress: OnProgress | None = None) -> WrittenRows:
    """Writes the rows of `frame`; `spec.columns` refers to its selected columns.

    Raises `InvalidOption` if Spark is too old, `ExecutorUnfit`, `RowsRefused`, and `SparkJobFailed`.
    """
    if not hasattr(frame, "repartitionById"):
        raise InvalidOption("pyspark", frame.sparkSession.version, "4.1 or later, for a bulk load")
    check_executors(frame.sparkSession, spec.url)
    name = f"hummock: bulk load of {spec.table.name}"
    encoded = spec.to_bytes()
    encode = partial(encode_rows, installed_version(), encoded)
    written = (frame.select(*columns.selected)
               .mapInArrow(encode, MESSAGES)
               .repartitionById(spec.partitions, PARTITION)
               .mapInArrow(partial(write_rows, encoded), ANSWER))
    rows = run_job(frame.sparkSession, written.collect, name=name, is_cancelled=is_cancelled, on_progress=on_progress)
    return joined([LoadPart.from_bytes(bytes(row.answer)) for row in rows], spec, name)


def partitions_of(frame: DataFrame, vnode_count: int) -> int:
    """The number of sort partitions: as many as task slots, or a multiple, so that each is of moderate size.

    A multiple of the slots keeps all of them busy to the end; it is based on Spark's own estimate of the frame's size,
    if it has one.
    """
    at_once = slots(frame.sparkSession)
    wanted = max(1, -(-_estimated_bytes(frame) // PARTITION_BYTES))
    return max(1, min(vnode_count, -(-wanted // at_once) * at_once))


def _estimated_bytes(frame: DataFrame) -> int:
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()
        estimate = int(str(plan.stats().sizeInBytes()))
    except Exception:       # a plan, or a remote session, may return anything instead of a number
        return 0
    return estimate if estimate < UNLIKELY_BYTES else 0


def joined(parts: Sequence[LoadPart], spec: LoadSpec, name: str) -> WrittenRows:
    """Combines all parts. Raises `RowsRefused`, and `SparkJobFailed` for a missing part."""
    for part in parts:
        if part.error:
            raise RowsRefused(part.error)
    if not parts:                   # a frame without partitions
        return WrittenRows()
    parts = sorted(parts, key=lambda part: part.partition)
    partitions = [part.partition for part in parts]
    if partitions != list(range(spec.partitions)) or len({part.senders for part in parts}) > 1:
        raise SparkJobFailed(name, f"answers came from partitions {partitions} of {spec.partitions}, which received "
                                   f"{sorted({part.senders for part in parts})} tasks")
    seconds: dict[str, float] = {}
    for part in parts:
        for phase, spent in part.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    keys = [key for part in parts for key in part.keys]
    return WrittenRows(
        tuple(info for part in parts for info in part.sstables), sum(part.rows_sent for part in parts),
        sum(part.rows_dropped for part in parts), sum(part.duplicates for part in parts), tuple(keys[:SHOWN_KEYS]),
        sum(part.spills for part in parts), seconds)
