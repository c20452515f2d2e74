"""LoadSpec: the input of every task of a bulk load; LoadPart: the result of the task that wrote a partition.

Small versioned records of JSON values, never pickled classes: the code of a task is that of the package installed on
its executor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hummock.base.json_fields import MALFORMED, check_format, natural
from hummock.base.table_rules import TableRules, tables_from_json, tables_to_json
from hummock.epoch import Epoch
from hummock.errors import InvalidTask
from hummock.options import StorageOptions
from hummock.sstable.info import SstableInfo
from relational.catalog.objects import TableCatalog

FORMAT = 2
DUPLICATE_RULES = ("error", "last", "first")


@dataclass(frozen=True, slots=True)
class Stored:
    """The existing rows of the table, as files: runs, the newest first, as of `epoch`."""

    epoch: Epoch
    runs: tuple[tuple[SstableInfo, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "runs": [[info.to_json() for info in run] for run in self.runs]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Stored:
        return cls(Epoch(natural(record["epoch"])),
                   tuple(tuple(map(SstableInfo.from_json, run)) for run in record["runs"]))


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """`partitions` are equal groups of vnodes; partition p contains all keys of group p, and files end at its
    boundaries.

    `columns`: for each table column, the index of a column of the frame, or -1: its default.
    """

    load_id: str
    url: str
    name_prefixes: tuple[str, ...]
    table: TableCatalog
    columns: tuple[int, ...]
    partitions: int
    on_duplicate: str
    sstable_bytes: int
    block_bytes: int
    codec: str
    filter_policy: str
    filter_bits_per_key: int
    memory_bytes: int                       # of rows buffered by a task before it spills to disk
    limit_ms: int                           # of an attempt at a partition; once exceeded, it uploads no more files
    tables: Mapping[int, TableRules] = field(default_factory=dict)
    stored: Stored | None = None

    @property
    def needs_ranks(self) -> bool:
        """Whether rows with equal keys are ranked by their position in the frame."""
        return self.on_duplicate != "error"

    @property
    def storage(self) -> StorageOptions:
        """How files are built."""
        return StorageOptions(sstable_bytes=self.sstable_bytes, block_bytes=self.block_bytes, codec=self.codec,
                              filter_policy=self.filter_policy, filter_bits_per_key=self.filter_bits_per_key)

    def first_vnode(self, partition: int) -> int:
        """The first vnode of a partition."""
        return -(-self.table.vnode_count * partition // self.partitions)

    def to_bytes(self) -> bytes:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return json.dumps({"format": FORMAT, **plain, "table": self.table.to_json(), "columns": list(self.columns),
                           "name_prefixes": list(self.name_prefixes),
                           "tables": tables_to_json(self.tables),
                           "stored": None if self.stored is None else self.stored.to_json()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LoadSpec:
        """The inverse of `to_bytes`. Raises `InvalidTask`."""
        try:
            record = _record(data)
            tables = {table_id: rules for table_id, rules in tables_from_json(record["tables"]).items() if rules}
            stored = None if record["stored"] is None else Stored.from_json(record["stored"])
            return cls(**{name: record[name] for name in _PLAIN}, table=TableCatalog.from_json(record["table"]),
                       columns=tuple(record["columns"]), name_prefixes=tuple(record["name_prefixes"]),
                       tables=tables, stored=stored)
        except MALFORMED as error:
            raise InvalidTask("bulk load", str(error)) from error


_PLAIN = ("load_id", "url", "partitions", "on_duplicate", "sstable_bytes", "block_bytes", "codec",
          "filter_policy", "filter_bits_per_key", "memory_bytes", "limit_ms")


@dataclass(frozen=True, slots=True)
class LoadPart:
    """The result of one partition: its files, ascending, and an account of the rows sent to it.

    `rows_sent == rows written + rows_dropped`, unless the task reported an error. `keys` is a sample of the keys that
    occurred twice or are stored already: `duplicates` in all.
    """

    partition: int
    sstables: tuple[SstableInfo, ...] = ()
    senders: int = 0
    rows_sent: int = 0
    rows_dropped: int = 0
    duplicates: int = 0
    keys: tuple[bytes, ...] = ()
    spills: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)      # by phase
    error: str = ""                         # not retryable

    def to_bytes(self) -> bytes:
        record = asdict(self)
        record["sstables"] = [info.to_json() for info in self.sstables]
        record["keys"] = [key.hex() for key in self.keys]
        return json.dumps({"format": FORMAT, **record}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LoadPart:
        """The inverse of `to_bytes`. Raises `InvalidTask`."""
        try:
            record = _record(data)
            del record["format"]
            record["sstables"] = tuple(map(SstableInfo.from_json, record["sstables"]))
            record["keys"] = tuple(map(bytes.fromhex, record["keys"]))
            return cls(**record)
        except MALFORMED as error:
            raise InvalidTask("part of a bulk load", str(error)) from error


def _record(data: bytes) -> dict[str, Any]:
    record = json.loads(data)
    check_format("a part of a bulk load", record["format"], FORMAT)
    return record
