"""CompactTask: what is merged into which run; RangeSpec: one key range of it, which any runner can execute.

Specs and results are small versioned records of JSON values, never pickled classes, so that a thread, a process and a
Spark executor get the same. A task's result depends only on its task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from hummock.base.json_fields import MALFORMED, U64, check_format, natural
from hummock.base.key import KeyRange
from hummock.base.table_rules import TableRules, tables_from_json, tables_to_json
from hummock.epoch import Epoch
from hummock.errors import InvalidTask
from hummock.options import StorageOptions
from hummock.sstable.info import SstableInfo, record_format
from hummock.version import LEVELS_LIMIT

FORMAT = 3              # see `record_format`
RANGE_FORMAT = 1
RESULT_FORMAT = 2


class TaskKind(StrEnum):
    """The reason for a task."""

    INTRA_L0 = "intra_l0"               # merges adjacent runs of level 0
    L0_TO_BASE = "l0_to_base"
    LEVEL = "level"                     # merges one level into the next
    EMERGENCY = "emergency"             # as the first two, without their limits on work
    SPACE_RECLAIM = "space_reclaim"     # files with rows of dropped tables
    TOMBSTONE = "tombstone"             # files with mostly tombstones and stale rows
    TTL = "ttl"
    WATERMARK = "watermark"             # rows below a table's key watermark
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class TaskInput:
    """Files of one run, not necessarily all."""

    level: int
    run: int
    sstables: tuple[SstableInfo, ...]   # ascending, disjoint, at least one


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How the files of a task are built; part of the task, so that every attempt builds the same."""

    sstable_bytes: int
    block_bytes: int
    codec: str
    filter_policy: str
    filter_bits_per_key: int

    def checked(self) -> OutputOptions:
        """Returns these options. ValueError if no process of the store could have set them."""
        StorageOptions(sstable_bytes=self.sstable_bytes, block_bytes=self.block_bytes, codec=self.codec,
                       filter_policy=self.filter_policy, filter_bits_per_key=self.filter_bits_per_key)
        return self


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Merges `inputs`, newest first, into run `target_run` of `target_level`.

    Rows at or below `watermark` are retained as design document 001 specifies; `drop_tombstones`: nothing outside of
    the inputs can hold one of their keys. `cuts` divide the key space into ranges of about equal bytes.
    """

    id: int
    kind: TaskKind
    inputs: tuple[TaskInput, ...]
    target_level: int
    target_run: int                     # 0 below level 0, where a level has one run
    watermark: Epoch
    drop_tombstones: bool
    output: OutputOptions
    dropped_tables: tuple[int, ...] = ()
    tables: Mapping[int, TableRules] = field(default_factory=dict)
    cuts: tuple[bytes, ...] = ()        # ascending user-key bounds

    def __repr__(self) -> str:
        files = sum(len(part.sstables) for part in self.inputs)
        return (f"CompactTask({self.id}, {self.kind.value}, {files} files of {len(self.inputs)} runs, "
                f"{self.input_rows} rows, {self.input_bytes} bytes, into level {self.target_level})")

    @property
    def input_files(self) -> Iterator[SstableInfo]:
        return (info for part in self.inputs for info in part.sstables)

    @property
    def input_bytes(self) -> int:
        return sum(info.data_bytes for info in self.input_files)

    @property
    def input_rows(self) -> int:
        return sum(info.rows for info in self.input_files)

    @property
    def input_hash(self) -> int | None:
        """The row digest of all rows; None if a file has none."""
        hashes = [info.seen_hash for info in self.input_files]
        known = [one for one in hashes if one is not None]
        return sum(known) % U64 if len(known) == len(hashes) else None

    def touches(self, key_range: KeyRange) -> bool:
        """Whether an input may hold keys of the range."""
        return any(info.largest >= key_range.start and (key_range.end is None or info.smallest < key_range.end)
                   for info in self.input_files)

    @property
    def borders(self) -> list[tuple[int, int]]:
        """(table id, vnode) pairs before which outputs are split."""
        return [border for table_id, rules in self.tables.items() for border in rules.borders(table_id)]

    def ranges(self) -> tuple[RangeSpec, ...]:
        """One spec for each range between cuts; together they cover all keys."""
        bounds = (b"", *self.cuts, None)
        return tuple(RangeSpec(self, index, start or b"", end)
                     for index, (start, end) in enumerate(pairwise(bounds)))

    def to_json(self) -> dict[str, Any]:
        return {
            "format": record_format(self.tables, self.input_files), "id": self.id, "kind": self.kind.value,
            "target_level": self.target_level, "target_run": self.target_run, "watermark": self.watermark,
            "drop_tombstones": self.drop_tombstones,
            "output": [self.output.sstable_bytes, self.output.block_bytes, self.output.codec,
                       self.output.filter_policy, self.output.filter_bits_per_key],
            "inputs": [[part.level, part.run, [info.to_json() for info in part.sstables]] for part in self.inputs],
            "dropped_tables": list(self.dropped_tables), "tables": tables_to_json(self.tables),
            "cuts": [cut.hex() for cut in self.cuts],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> CompactTask:
        """The inverse of `to_json`. Raises `InvalidTask`."""
        try:
            check_format(f"compact task {record.get('id')}", record["format"], FORMAT, 1)
            inputs = tuple(
                TaskInput(natural(level, LEVELS_LIMIT), natural(run), tuple(map(SstableInfo.from_json, infos)))
                for level, run, infos in record["inputs"])
            tables = {table_id: rules for table_id, rules in tables_from_json(record["tables"]).items() if rules}
            return cls(natural(record["id"]), TaskKind(record["kind"]), inputs,
                       natural(record["target_level"], LEVELS_LIMIT), natural(record["target_run"]),
                       Epoch(natural(record["watermark"])), bool(record["drop_tombstones"]),
                       OutputOptions(*record["output"]).checked(), tuple(map(natural, record["dropped_tables"])),
                       tables, tuple(map(bytes.fromhex, record["cuts"])))
        except MALFORMED as error:
            raise InvalidTask("compact task", str(error)) from error


@dataclass(frozen=True, slots=True)
class RangeSpec:
    """The user keys of [start, end) of a task, `end` None: to the last; the unit of one attempt."""

    task: CompactTask
    index: int                          # among the task's ranges, ascending
    start: bytes
    end: bytes | None

    def narrowed(self) -> RangeSpec:
        """The same range with only those inputs that it overlaps: the minimum that its worker needs."""
        def touches(info: SstableInfo) -> bool:
            return info.largest >= self.start and (self.end is None or info.smallest < self.end)

        parts = [replace(part, sstables=tuple(filter(touches, part.sstables))) for part in self.task.inputs]
        task = replace(self.task, inputs=tuple(part for part in parts if part.sstables), cuts=())
        return replace(self, task=task)

    def to_json(self) -> dict[str, Any]:
        return {"format": RANGE_FORMAT, "task": self.task.to_json(), "place": self.index, "start": self.start.hex(),
                "end": None if self.end is None else self.end.hex()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RangeSpec:
        """The inverse of `to_json`. Raises `InvalidTask`."""
        try:
            end = record["end"]
            check_format("a range of a compact task", record["format"], RANGE_FORMAT)
            return cls(CompactTask.from_json(record["task"]), natural(record["place"]),
                       bytes.fromhex(record["start"]), None if end is None else bytes.fromhex(end))
        except MALFORMED as error:
            raise InvalidTask("range of a compact task", str(error)) from error


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The output of one attempt at one range: files, ascending and disjoint, and the account of its input rows.

    For each range `rows_read == rows_dropped + rows of sstables`, and over all ranges of a task `rows_read` is the
    task's `input_rows`; row digests add up likewise. Otherwise a report is refused.
    """

    index: int
    sstables: tuple[SstableInfo, ...]
    rows_read: int
    rows_dropped: int
    hash_read: int                      # row digests of these rows
    hash_dropped: int
    bytes_read: int                     # from the object store
    cpu_seconds: float = 0.0

    def mismatch(self) -> str:
        """Describes rows that were read and are neither in a file nor dropped; empty if there are none."""
        kept, kept_hash = sum(info.rows for info in self.sstables), 0
        for info in self.sstables:
            if info.content_hash is None:
                return f"made {info.name} without a content hash"
            kept_hash += info.content_hash
        if self.rows_dropped < 0 or self.rows_read != self.rows_dropped + kept:
            return f"read {self.rows_read} rows, kept {kept} and dropped {self.rows_dropped}"
        if self.hash_read != (self.hash_dropped + kept_hash) % U64:
            return (f"read {self.rows_read} rows of content hash {self.hash_read:016x}, kept {kept_hash % U64:016x} "
                    f"and dropped {self.hash_dropped:016x}")
        return ""

    def to_json(self) -> dict[str, Any]:
        return {"format": RESULT_FORMAT, "place": self.index, "sstables": [info.to_json() for info in self.sstables],
                "rows_read": self.rows_read, "rows_dropped": self.rows_dropped, "hash_read": self.hash_read,
                "hash_dropped": self.hash_dropped, "bytes_read": self.bytes_read, "cpu_seconds": self.cpu_seconds}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RangeResult:
        """The inverse of `to_json`. Raises `InvalidTask`."""
        try:
            check_format("the result of a compact task", record["format"], RESULT_FORMAT)
            return cls(natural(record["place"]), tuple(map(SstableInfo.from_json, record["sstables"])),
                       natural(record["rows_read"]), natural(record["rows_dropped"]), natural(record["hash_read"]),
                       natural(record["hash_dropped"]), natural(record["bytes_read"]), float(record["cpu_seconds"]))
        except MALFORMED as error:
            raise InvalidTask("result of a compact task", str(error)) from error
