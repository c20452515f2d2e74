"""BackfillSpec: what all tasks of one bulk backfill share, as a small versioned record.

A task plans the view again from its catalog with the table ids that the driver got, so driver and tasks run the same
executors over the same tables. Nothing of ours is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from hummock.epoch import Epoch
from hummock.options import StorageOptions
from relational.catalog.objects import TableCatalog
from stream.plan.planner import plan_known_view
from stream.spark.fragments import Fragment, fragments_of

FORMAT = 1


@dataclass(frozen=True)
class BackfillSpec:
    """The history of `view` over `tables`, as they were at `epoch`.

    `state_ids`: the ids of its internal tables by name. `tasks`: how many there are of each fragment. Files go to the
    store at `url`, their names begin with `prefix`, and `storage` says how they are built. A task keeps at most
    `memory_bytes` of what arrives in memory, and as much of what it writes."""

    view: TableCatalog
    tables: tuple[TableCatalog, ...]
    state_ids: Mapping[str, int]
    epoch: Epoch
    tasks: tuple[int, ...]
    url: str
    prefix: str
    storage: StorageOptions
    memory_bytes: int

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        tables = {table.id: table for table in self.tables}
        return fragments_of(plan_known_view(self.view, tables.__getitem__, self.state_ids.__getitem__))

    def to_bytes(self) -> bytes:
        record = {
            "format": FORMAT,
            "view": self.view.to_json(),
            "tables": [table.to_json() for table in self.tables],
            "state_ids": dict(self.state_ids),
            "epoch": self.epoch,
            "tasks": list(self.tasks),
            "url": self.url,
            "prefix": self.prefix,
            "storage": asdict(self.storage),
            "memory_bytes": self.memory_bytes,
        }
        return json.dumps(record, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> BackfillSpec:
        """The inverse of `to_bytes`. ValueError for a format that this version does not know."""
        record = json.loads(text)
        if record["format"] != FORMAT:
            raise ValueError(f"a backfill of format {record['format']}, expected {FORMAT}")
        return cls(
            view=TableCatalog.from_json(record["view"]),
            tables=tuple(map(TableCatalog.from_json, record["tables"])),
            state_ids=record["state_ids"],
            epoch=Epoch(record["epoch"]),
            tasks=tuple(record["tasks"]),
            url=record["url"],
            prefix=record["prefix"],
            storage=StorageOptions(**record["storage"]),
            memory_bytes=record["memory_bytes"],
        )
