"""A model of an epoch over 10 TB of state on 1,000 executors: the real planner of the driver, fed with descriptions.

The state of a view is 40,000 files of 256 MB in a version as compaction leaves it, with 64 files of recent epochs
above; the view has 1,024 vnodes, its source 1,000 splits. The epoch brings HUMMOCK_SCALE_ROWS rows (1e11) of
HUMMOCK_SCALE_BYTES bytes (32) in the exchange. What runs here is the driver's part: the segments, the specs of both
stages, and the reports of the first. What tasks do is counted: requests for blocks of the exchange. Each wall with its
number:

    requests of the exchange     of bytes / 8 MB, at most 3 times
    specs                        all together at most 50 MB
    driver                       grows by at most 4 GB
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from bench.bench_sources import QUERIES
from hummock.base.key import user_key
from hummock.base.process import peak_memory_bytes
from hummock.epoch import SPILL_BITS, Epoch, EpochPair
from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store import open_object_store
from hummock.options import StorageOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, Level, Run
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.protocol import ActorSpec
from stream.session.session import Session
from stream.spark.epoch_spec import EpochReport, EpochTask, edge_schemas
from stream.spark.shuffle_files import BLOCK_BYTES, ShufflePart
from stream.spark.shuffle_nodes import SentEdge
from stream.spark.spark_worker import SparkWorker
from stream.spark.stages import StageGraph, bundled, ranges_read

EXECUTORS, VNODES, SPLITS = 1_000, 1_024, 1_000
STATE_FILES, RECENT_FILES, FILE_BYTES = 40_000, 64, 256 << 20
ROWS = int(float(os.environ.get("HUMMOCK_SCALE_ROWS", "1e11")))
ROW_BYTES = int(os.environ.get("HUMMOCK_SCALE_BYTES", "32"))
EPOCH = Epoch(1_700_000_000_000 << SPILL_BITS)
MOST_REQUESTS, MOST_SPECS, MOST_DRIVER = 3.0, 50 << 20, 4 << 30
COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"


class _NoTasks:
    """No epoch with rows is run."""

    slots = EXECUTORS

    def run(self, name: str, tasks: list[EpochTask], is_cancelled: object) -> list[EpochReport]:
        raise AssertionError("the model plans epochs, it runs none")


def actors() -> tuple[ActorSpec, ...]:
    """Those of q17 over a source with SPLITS splits, as the meta side describes them."""
    options = PlaygroundOptions(StreamOptions(barrier_interval_ms=3_600_000, sources_paused=True))
    playground = Playground(open_object_store("memory://"), MemoryMetaStore(), options,
                            engine=lambda ports: SparkWorker(ports, _NoTasks()))
    session = Session(playground)
    try:
        session.sql(f"CREATE SOURCE bid ({COLUMNS}) WITH (connector = 'nexmark', splits = '2')")
        session.sql(f"CREATE MATERIALIZED VIEW q17 WITH (vnode_count = {VNODES}) AS {QUERIES['q17']}")
        found = tuple(playground.node._running.values())  # type: ignore[attr-defined]
        splits = tuple(f"{number:04}" for number in range(SPLITS))
        return tuple(spec if spec.splits is None else replace(spec, splits=splits, all_splits=splits)
                     for spec in found)
    finally:
        session.abandon()


def files(rng: random.Random, table_ids: list[int], count: int) -> tuple[SstableInfo, ...]:
    """Files of the tables, each with an even range of their keys."""
    found = []
    for table_id in table_ids:
        of_table = count // len(table_ids)
        for number in range(of_table):
            vnodes = divmod(number * VNODES, of_table), divmod((number + 1) * VNODES, of_table)
            first, last = (user_key(table_id, vnode, rest.to_bytes(4)) for vnode, rest in vnodes)
            found.append(SstableInfo(
                rng.randbytes(16).hex(), first + b"\x01", last, 5_000_000, FILE_BYTES, 2 * FILE_BYTES, (table_id,),
                EPOCH, EPOCH, id=len(found) + 1, meta_bytes=1 << 16, meta_digest=rng.randbytes(16).hex(),
                content_hash=rng.getrandbits(63),
            ))  # fmt: skip
    return tuple(sorted(found, key=lambda info: info.smallest))


def version_of(rng: random.Random, tables: list[int]) -> HummockVersion:
    recent = tuple(Run(number + 2, (info,)) for number, info in enumerate(files(rng, tables, RECENT_FILES)))
    return HummockVersion(1, EPOCH, EPOCH, (Level(0, recent), Level(1, (Run(1, files(rng, tables, STATE_FILES)),))))


def task_of(actors: tuple[ActorSpec, ...], version: HummockVersion) -> bytes:
    epoch = EpochPair(Epoch(EPOCH + (1 << SPILL_BITS)), EPOCH)
    prefixes = tuple(f"{number:016x}" for number in range(16))
    return EpochTask(actors, epoch, Epoch(EPOCH + (2 << SPILL_BITS)), version.narrowed(ranges_read(actors)),
                     "s3://bucket/prefix", prefixes, StorageOptions(), 65_536, ROWS // SPLITS, 1_000,
                     StreamOptions().state_cache_bytes).to_bytes()


def sent_by(rng: random.Random, receivers: int) -> ShufflePart:
    """What a task of the first stage sends: the blocks that ShuffleFile would write."""
    rows = ROWS // SPLITS
    size = rows * ROW_BYTES // receivers
    pieces = max(1, -(-size // BLOCK_BYTES))
    blocks, start = [], 0
    for receiver in range(receivers):
        for piece in range(pieces):
            length = size // pieces + (piece < size % pieces)
            blocks.append((receiver, start, length, rng.getrandbits(32)))
            start += length
    return ShufflePart(rng.randbytes(16).hex(), tuple(blocks), rows)


def planned(rng: random.Random, specs: tuple[ActorSpec, ...], version: HummockVersion) -> dict[str, Any]:
    """The driver's part of an epoch: what each stage cost, and what its tasks will request."""
    figures: dict[str, Any] = {}
    graph = StageGraph(specs, lambda spec: False)
    counts = graph.task_counts(EXECUTORS)
    sent: dict[int, list[SentEdge]] = {}
    for number, stage in enumerate(graph.stages()):
        began = time.perf_counter()
        parts = [(segment, graph.actors_of(segment, part, counts, sent))
                 for segment in stage for part in range(counts[segment.number])]
        bundles = bundled([(segment.number, 1) for segment, _ in parts], EXECUTORS)
        payloads = [task_of(tuple(spec for part in bundle for spec in parts[part][1]), version) for bundle in bundles]
        figures[f"stage {number}"] = (len(payloads), time.perf_counter() - began, sum(map(len, payloads)))
        for segment in stage:
            for edge in segment.outgoing:
                receivers = next(counts[each.number] for each in graph.segments if edge in each.incoming)
                began, size = time.perf_counter(), 0
                for part in range(counts[segment.number]):
                    types = edge_schemas(graph.actors_of(segment, part, counts, sent))
                    report = EpochReport(sent={edge.number: SentEdge(sent_by(rng, receivers))}).to_bytes(types)
                    size += len(report)
                    sent.setdefault(edge.number, []).append(EpochReport.from_bytes(report, types).sent[edge.number])
                figures["reports"] = (counts[segment.number], time.perf_counter() - began, size)
    figures["blocks"] = sum(len(each.part.blocks) for edge in sent.values() for each in edge)
    return figures


def test_an_epoch_over_ten_terabytes(benchmark: Any) -> None:
    rng = random.Random(7)
    specs = actors()
    states = [table for spec in specs for node in spec.root.walk() for table in (*node.state_tables, spec.table)]
    tables = sorted({table.id for table in states if table.distribution_key})
    version = version_of(rng, tables)
    before = peak_memory_bytes()
    figures = benchmark.pedantic(planned, (rng, specs, version), rounds=1)
    grown = peak_memory_bytes() - before
    size = ROWS * ROW_BYTES
    requests = figures["blocks"] / (size / BLOCK_BYTES)
    stages = [value for name, value in figures.items() if name.startswith("stage")]
    all_specs = sum(stage[2] for stage in stages)
    print(f"\n{ROWS:.0e} rows, {size / 1e12:.1f} TB exchanged, {STATE_FILES:,} files of state, {EXECUTORS:,} executors")
    for name, (tasks, seconds, length) in ((name, value) for name, value in figures.items() if name != "blocks"):
        print(f"  {name}: {tasks:,} tasks, {seconds:.2f} s, {length / 1e6:.1f} MB")
    print(f"  requests for blocks: {figures['blocks']:,}, {requests:.2f} of bytes / 8 MB (at most {MOST_REQUESTS})")
    print(f"  specs: {all_specs / 1e6:.1f} MB (at most {MOST_SPECS / 1e6:.0f}); driver grew by {grown / 1e6:.0f} MB "
          f"(at most {MOST_DRIVER / 1e6:.0f})")
    benchmark.extra_info.update(requests=requests, specs=all_specs, driver=grown)


if __name__ == "__main__":
    pytest.main(["-s", __file__])
