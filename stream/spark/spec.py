"""BackfillSpec, shared by all tasks of one bulk backfill, and TaskSpec, the input of one task: versioned records.

The driver plans the view once; tasks and the running job get that plan, as the catalog stores it, and its tables: a
second plan would hash the groups of DISTINCT values by another key. No object of this project is pickled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

from hummock.base.json_fields import check_format
from hummock.epoch import Epoch
from hummock.options import StorageOptions
from relational.catalog.objects import TableCatalog
from stream.plan.fragments import Fragment
from stream.plan.serialize import stream_plan_from_text
from stream.spark.fragments import backfill_fragments
from stream.spark.shuffle_files import ShuffleBlock

FORMAT = 4


@dataclass(frozen=True)
class BackfillSpec:
    """The history of `view` over `tables`, as they were at `epoch`.

    `plan`: that of the view, as `stream_plan_to_text` makes it; `states`: its internal tables. `tasks`: the number of
    tasks of each fragment. Files are
    written to the store at `url` under names that begin with one of `prefixes`, built with the options `storage`. A
    task buffers at most `memory_bytes` of its output in memory."""

    view: TableCatalog
    tables: tuple[TableCatalog, ...]
    states: tuple[TableCatalog, ...]
    plan: str
    epoch: Epoch
    tasks: tuple[int, ...]
    url: str
    prefixes: tuple[str, ...]
    storage: StorageOptions
    memory_bytes: int

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        tables = {table.id: table for table in (self.view, *self.tables, *self.states)}
        return backfill_fragments(stream_plan_from_text(self.plan, tables.__getitem__))

    def to_bytes(self) -> bytes:
        record = {
            "format": FORMAT,
            "view": self.view.to_json(),
            "tables": [table.to_json() for table in self.tables],
            "states": [table.to_json() for table in self.states],
            "plan": self.plan,
            "epoch": self.epoch,
            "tasks": list(self.tasks),
            "url": self.url,
            "prefixes": list(self.prefixes),
            "storage": asdict(self.storage),
            "memory_bytes": self.memory_bytes,
        }
        return json.dumps(record, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> BackfillSpec:
        """The inverse of `to_bytes`. ValueError for an older format, FormatTooNew for a newer one."""
        record = json.loads(text)
        check_format("a backfill", record["format"], FORMAT)
        return cls(
            view=TableCatalog.from_json(record["view"]),
            tables=tuple(map(TableCatalog.from_json, record["tables"])),
            states=tuple(map(TableCatalog.from_json, record["states"])),
            plan=record["plan"],
            epoch=Epoch(record["epoch"]),
            tasks=tuple(record["tasks"]),
            url=record["url"],
            prefixes=tuple(record["prefixes"]),
            storage=StorageOptions(**record["storage"]),
            memory_bytes=record["memory_bytes"],
        )


@dataclass(frozen=True)
class TaskSpec:
    """A task of fragment `fragment` of `backfill`. Its input is `scan`, a ReadSpec, in the first fragment, and the
    shuffle `blocks`, in their order, in later ones."""

    backfill: BackfillSpec
    fragment: int
    scan: bytes = b""
    blocks: tuple[ShuffleBlock, ...] = ()

    def to_bytes(self) -> bytes:
        name_index = {name: index for index, name in enumerate(sorted({block.name for block in self.blocks}))}
        record = {
            "format": FORMAT,
            "backfill": self.backfill.to_bytes().decode(),
            "fragment": self.fragment,
            "scan": self.scan.hex(),
            "names": list(name_index),
            "parcels": [[name_index[each.name], each.start, each.size, each.checksum] for each in self.blocks],
        }
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> TaskSpec:
        """The inverse of `to_bytes`. ValueError for an older format, FormatTooNew for a newer one."""
        record = json.loads(text)
        check_format("a task of a backfill", record["format"], FORMAT)
        blocks = tuple(ShuffleBlock(record["names"][name], *rest) for name, *rest in record["parcels"])
        return cls(_shared(record["backfill"]), record["fragment"], bytes.fromhex(record["scan"]), blocks)


@lru_cache(1)
def _shared(text: str) -> BackfillSpec:
    """Parsed and planned once for consecutive tasks of a worker."""
    return BackfillSpec.from_bytes(text.encode())
