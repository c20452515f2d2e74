"""EpochTask, the input of a task that runs some actors for one epoch, and EpochReport, its result: versioned records.

A record has the fragments that the task runs and the catalogs of their tables, so a task needs neither the catalog nor
the meta store. No object of this project is pickled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hummock.base.json_fields import check_format
from hummock.base.key_watermark import KeyWatermark
from hummock.epoch import Epoch, EpochPair
from hummock.options import StorageOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion
from relational.catalog.objects import TableCatalog
from relational.plan.serialize import call_from_json, call_to_json
from relational.types import DataType, Field, Schema, VnodeRule
from relational.types.value_json import value_from_json, value_to_json
from stream.message import SkippedRows
from stream.plan.serialize import fragment_from_json, fragment_to_json
from stream.plan.stream_plan import MergeNode, PartialAggNode, StreamNode, tables_of
from stream.protocol import ActorSpec, EdgeSpec, InputSpec
from stream.spark.shuffle_files import Partitioning, ShuffleBlock, part_from_json, part_to_json
from stream.spark.shuffle_nodes import SentEdge, ShuffleReadNode, ShuffleWriteNode

FORMAT = 1


@dataclass(frozen=True, slots=True)
class EpochTask:
    """Some actors, for the epoch that `epoch` opens, over the rows of its `prev`, which is committed; the barrier that
    opens `next_epoch` ends it.

    `actors` are connected with each other, and with other tasks by ShuffleRead and ShuffleWrite nodes. `version`: the
    part of a version of the store at `url` that they read. Objects are written there under names that begin with one
    of `prefixes`, built with the options `storage`. The sources read `source_rows` rows each, or what they have within
    `source_ms`, without waiting for more; they read nothing if `is_paused`. So do the actors `scanning`, which may not
    have read all existing rows of other tables. The sources of jobs `held` wait for their sinks. `loading`: tables that
    accept no statements. `connectors`: name -> "module:factory" of those that are not of this package. `threads` run
    the actors, divided among them. `accepted`: by actor, the attempt at a task of an earlier epoch that ran it last.
    `state_cache_bytes`: of the state of all executors. `row_ids_after_ms`: row ids up to this millisecond were
    given in earlier epochs."""

    actors: tuple[ActorSpec, ...]
    epoch: EpochPair
    next_epoch: Epoch
    version: HummockVersion
    url: str
    prefixes: tuple[str, ...]
    storage: StorageOptions
    chunk_rows: int
    source_rows: int
    source_ms: int
    state_cache_bytes: int
    scanning: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    is_paused: bool = False
    loading: frozenset[int] = frozenset()
    connectors: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    accepted: Mapping[int, str] = field(default_factory=dict)
    row_ids_after_ms: int = 0

    def to_bytes(self) -> bytes:
        tables: dict[int, TableCatalog] = {}
        record = {
            "format": FORMAT,
            "actors": [_actor_to_json(spec, tables) for spec in self.actors],
            "tables": [table.to_json() for table in tables.values()],
            "epoch": [self.epoch.curr, self.epoch.prev, self.next_epoch],
            "version": self.version.to_json(),
            "url": self.url,
            "prefixes": list(self.prefixes),
            "storage": asdict(self.storage),
            "source": [self.chunk_rows, self.source_rows, self.source_ms],
            "state_cache_bytes": self.state_cache_bytes,
            "scanning": sorted(self.scanning),
            "held": sorted(self.held),
            "is_paused": self.is_paused,
            "loading": sorted(self.loading),
            "connectors": dict(self.connectors),
            "threads": self.threads,
            "accepted": list(self.accepted.items()),
            "row_ids_after": self.row_ids_after_ms,
        }
        return zlib.compress(json.dumps(record).encode(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> EpochTask:
        """The inverse of `to_bytes`. ValueError for an older format, FormatTooNew for a newer one."""
        record = json.loads(zlib.decompress(data))
        check_format("a task of an epoch", record["format"], FORMAT)
        tables = {table.id: table for table in map(TableCatalog.from_json, record["tables"])}
        curr, prev, following = map(Epoch, record["epoch"])
        chunk_rows, source_rows, source_ms = record["source"]
        return cls(
            tuple(_actor_from_json(each, tables) for each in record["actors"]),
            EpochPair(curr, prev),
            following,
            HummockVersion.from_json(record["version"]),
            record["url"],
            tuple(record["prefixes"]),
            StorageOptions(**record["storage"]),
            chunk_rows,
            source_rows,
            source_ms,
            record["state_cache_bytes"],
            frozenset(record["scanning"]),
            frozenset(record["held"]),
            record["is_paused"],
            frozenset(record["loading"]),
            record["connectors"],
            record["threads"],
            dict(record["accepted"]),
            record["row_ids_after"],
        )


@dataclass(frozen=True, slots=True)
class ActorFigures:
    """The changes that an actor emitted and the CPU time that it took. `executors`: by the position of its nodes, the
    visible rows that each emitted, and the CPU time with those below. `errors`: its rows without a value, by reason.
    """

    rows: int = 0
    cpu_seconds: float = 0.0
    executors: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: ActorFigures) -> ActorFigures:
        """Of both together."""
        executors = dict(self.executors)
        for position, (rows, seconds) in other.executors.items():
            before = executors.get(position, (0, 0.0))
            executors[position] = before[0] + rows, before[1] + seconds
        reasons = self.errors.keys() | other.errors.keys()
        errors = {reason: self.errors.get(reason, 0) + other.errors.get(reason, 0) for reason in reasons}
        return ActorFigures(self.rows + other.rows, self.cpu_seconds + other.cpu_seconds, executors, errors)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The error of an actor that no repetition heals: the module and name of its class and its text; `position`: the
    split and offset of its source, None without one."""

    actor_id: int
    module: str
    name: str
    text: str
    position: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The result of a task, whichever attempt it came from: files and shuffle files that no report names are ignored.

    `sstables`: with all that the actors wrote. `watermarks`: of state tables, by id. `sent`: by number of the edge.
    `backfilled`: actors that have read all existing rows. `source_rows`: read from connectors; `is_full`: there may be
    more. `finished`: by actor, the splits of which all rows were read. `failure`: what ended the task, of which nothing
    else counts. `attempt`: under which name the process that made it keeps groups, empty: it keeps none; `executor`:
    where that is, as Spark names it, empty: unknown. `row_ids_ms`: the millisecond of the last row id that was given.
    """

    sstables: tuple[SstableInfo, ...] = ()
    watermarks: Mapping[int, KeyWatermark] = field(default_factory=dict)
    sent: Mapping[int, SentEdge] = field(default_factory=dict)
    backfilled: tuple[int, ...] = ()
    source_rows: int = 0
    is_full: bool = False
    figures: Mapping[int, ActorFigures] = field(default_factory=dict)
    finished: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    failure: TaskFailure | None = None
    attempt: str = ""
    executor: str = ""
    row_ids_ms: int = 0

    def to_bytes(self, types: Mapping[int, Schema]) -> bytes:
        """`types`: the columns of each edge."""
        failure = self.failure
        record = {
            "sstables": [info.to_json() for info in self.sstables],
            "watermarks": {table_id: mark.to_json() for table_id, mark in self.watermarks.items()},
            "sent": [
                [edge, part_to_json(each.part), _marks_to_json(each.marks, types[edge]), each.combined_rows,
                 dict(each.errors)]
                for edge, each in self.sent.items()
            ],
            "backfilled": list(self.backfilled),
            "source": [self.source_rows, self.is_full],
            "figures": [
                [actor_id, each.rows, each.cpu_seconds, [[at, *found] for at, found in each.executors.items()],
                 dict(each.errors)]
                for actor_id, each in self.figures.items()
            ],
            "finished": [[actor_id, list(splits)] for actor_id, splits in self.finished.items()],
            "failure": None if failure is None else asdict(failure),
            "attempt": [self.attempt, self.executor, self.row_ids_ms],
        }
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, text: bytes, types: Mapping[int, Schema]) -> EpochReport:
        """The inverse of `to_bytes`."""
        record = json.loads(text)
        failure, (source_rows, is_full) = record["failure"], record["source"]
        if failure is not None:
            position = failure["position"]
            failure = TaskFailure(**{**failure, "position": None if position is None else tuple(position)})
        return cls(
            tuple(map(SstableInfo.from_json, record["sstables"])),
            {int(table_id): KeyWatermark.from_json(mark) for table_id, mark in record["watermarks"].items()},
            {edge: SentEdge(part_from_json(part), _marks_from_json(marks, types[edge]), combined, errors)
             for edge, part, marks, combined, errors in record["sent"]},
            tuple(record["backfilled"]),
            source_rows,
            is_full,
            {actor_id: ActorFigures(rows, seconds, {at: (count, cpu) for at, count, cpu in executors}, errors)
             for actor_id, rows, seconds, executors, errors in record["figures"]},
            {actor_id: tuple(splits) for actor_id, splits in record["finished"]},
            failure,
            *record["attempt"],
        )  # fmt: skip


def edge_schemas(actors: Iterable[ActorSpec]) -> dict[int, Schema]:
    """The columns of the edges on which these actors send to other tasks."""
    return {spec.root.edge: spec.root.schema for spec in actors if isinstance(spec.root, ShuffleWriteNode)}


def _marks_to_json(marks: Mapping[int, Any], schema: Schema) -> list[Any]:
    return [[column, value_to_json(value, schema[column].data_type)] for column, value in marks.items()]


def _marks_from_json(record: Iterable[Any], schema: Schema) -> dict[int, Any]:
    return {column: value_from_json(value, schema[column].data_type) for column, value in record}


def _actor_to_json(spec: ActorSpec, tables: dict[int, TableCatalog]) -> dict[str, Any]:
    """`tables` gets the catalogs of the actor's tables."""
    found = [spec.table, *(() if spec.error_table is None else (spec.error_table,))]
    found += [node.state_table for node in spec.root.walk() if isinstance(node, PartialAggNode)]
    tables.update({table.id: table for table in found} | tables_of(spec.root))
    assert spec.first_rows is None and not spec.is_detached, "these actors run in the process of the driver"
    return {
        "id": spec.actor_id,
        "table": spec.table.id,
        "root": _root_to_json(spec.root),
        "fragment": spec.fragment,
        "inputs": [
            [list(each.edge.edge_id), list(each.edge.key), each.edge.rule.value, list(each.upstreams)]
            for each in spec.inputs
        ],
        "vnodes": None if spec.vnodes is None else _range_of(spec.vnodes),
        "part": [spec.number, spec.siblings],
        "errors": None if spec.error_table is None else spec.error_table.id,
        "splits": None if spec.splits is None else list(spec.splits),
        "all_splits": list(spec.all_splits),
        "since": spec.since,
        "is_loaded": spec.is_loaded,
        "skip": None if spec.skip is None else list(spec.skip),
        "skippable": dict(spec.skippable),
        "writes": spec.writes,
        "is_resumed": spec.is_resumed,
        "partial_errors": None if spec.partial_errors is None else dict(spec.partial_errors),
    }


def _actor_from_json(record: Mapping[str, Any], tables: Mapping[int, TableCatalog]) -> ActorSpec:
    splits, skip, since = record["splits"], record["skip"], record["since"]
    number, siblings = record["part"]
    return ActorSpec(
        record["id"],
        tables[record["table"]],
        _root_from_json(record["root"], tables),
        record["fragment"],
        tuple(
            InputSpec(EdgeSpec(tuple(edge), tuple(key), rule=VnodeRule(rule)), tuple(upstreams))
            for edge, key, rule, upstreams in record["inputs"]
        ),
        None if record["vnodes"] is None else vnode_bitmap(*record["vnodes"]),
        number,
        siblings,
        None if record["errors"] is None else tables[record["errors"]],
        None if splits is None else tuple(splits),
        tuple(record["all_splits"]),
        None if since is None else Epoch(since),
        record["is_loaded"],
        None if skip is None else SkippedRows(*skip),
        record["skippable"],
        writes=record["writes"],
        is_resumed=record["is_resumed"],
        partial_errors=record["partial_errors"],
    )


def _range_of(vnodes: np.ndarray) -> list[int]:
    """First vnode, the one after the last, and the count. REQUIRES a contiguous range."""
    owned = np.flatnonzero(vnodes)
    return [int(owned[0]), int(owned[-1]) + 1, len(vnodes)]


def vnode_bitmap(first: int, end: int, count: int) -> np.ndarray:
    """uint8[count], 1 for the vnodes of [first, end)."""
    vnodes = np.zeros(count, np.uint8)
    vnodes[first:end] = 1
    return vnodes


def _root_to_json(root: StreamNode) -> dict[str, Any]:
    if isinstance(root, ShuffleReadNode):
        blocks = [[each.name, each.start, each.size, each.checksum] for each in root.blocks]
        return {"read": blocks, "marks": _marks_to_json(root.marks, root.schema), "schema": _schema_to_json(root),
                "groups": None if root.group_by is None else list(root.group_by)}
    if isinstance(root, ShuffleWriteNode):
        how = replace(root.partitioning, rule=VnodeRule.HASH)
        partial = root.partial
        return {"write": root.edge, "how": [*asdict(how).values()], "rule": root.partitioning.rule.value,
                "schema": _schema_to_json(root), "partial": None if partial is None else _partial_to_json(partial)}
    return fragment_to_json(root)


def _root_from_json(record: Mapping[str, Any], tables: Mapping[int, TableCatalog]) -> StreamNode:
    if "read" in record:
        schema = _schema_from_json(record["schema"])
        blocks = tuple(ShuffleBlock(*each) for each in record["read"])
        group_by = None if record["groups"] is None else tuple(record["groups"])
        return ShuffleReadNode(schema, None, blocks, _marks_from_json(record["marks"], schema), group_by)
    if "write" in record:
        schema = _schema_from_json(record["schema"])
        receivers, key, vnode_count, _, target = record["how"]
        how = Partitioning(receivers, tuple(key), vnode_count, VnodeRule(record["rule"]), target)
        partial = None if record["partial"] is None else _partial_from_json(record["partial"], tables)
        return shuffle_write(schema, record["write"], how, partial)
    return fragment_from_json(record, tables.__getitem__)


def _partial_to_json(node: PartialAggNode) -> dict[str, Any]:
    return {"schema": _schema_to_json(node), "group_by": list(node.group_by),
            "calls": list(map(call_to_json, node.calls)), "table": node.state_table.id}


def _partial_from_json(record: Mapping[str, Any], tables: Mapping[int, TableCatalog]) -> PartialAggNode:
    schema = _schema_from_json(record["schema"])
    input = MergeNode(schema, None, 0, None, 0)
    calls = tuple(map(call_from_json, record["calls"]))
    return PartialAggNode(schema, None, input, tuple(record["group_by"]), calls, tables[record["table"]])


def shuffle_write(
    schema: Schema, edge: int, partitioning: Partitioning, partial: PartialAggNode | None = None
) -> ShuffleWriteNode:
    """The node of an actor that writes what another one of its task sends it, or the groups of `partial` of it."""
    input = MergeNode(schema, None, 0, None, 0) if partial is None else partial
    return ShuffleWriteNode(schema, None, input, edge, partitioning)


def _schema_to_json(node: StreamNode) -> list[list[str]]:
    return [[each.name, str(each.data_type)] for each in node.schema]


def _schema_from_json(record: Iterable[Iterable[str]]) -> Schema:
    return Schema(tuple(Field(name, DataType.parse(kind)) for name, kind in record))
