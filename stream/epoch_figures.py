"""Figures of epochs whose actors ran as tasks: where, how long, how many rows, and how evenly they were divided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

SCHEMA = pa.schema(
    {
        "epoch": pa.int64(),
        "engine": pa.string(),
        "seconds": pa.float64(),
        "source_rows": pa.int64(),
        "stage": pa.int32(),
        "stage_seconds": pa.float64(),
        "tasks": pa.int32(),
        "changes": pa.int64(),
        "cpu_seconds": pa.float64(),
        "shuffled_bytes": pa.int64(),
        "skew": pa.float64(),
    }
)


@dataclass(frozen=True, slots=True)
class StageFigures:
    """`changes` that all actors of the stage emitted, `shuffled_bytes` that its tasks sent to later ones. `skew`: the
    CPU time of the task that took most, divided by the mean; 1 is even."""

    seconds: float
    tasks: int
    changes: int
    cpu_seconds: float
    shuffled_bytes: int
    skew: float


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """`engine`: "driver" for an epoch that ran as one task in the process of the driver, else "spark"."""

    epoch: int
    engine: str
    seconds: float
    source_rows: int
    stages: tuple[StageFigures, ...]


def epochs_table(epochs: Iterable[EpochFigures]) -> pa.Table:
    """A row for each stage of each epoch; an epoch in which nothing ran has one without a stage."""
    rows = []
    for each in epochs:
        whole = {"epoch": each.epoch, "engine": each.engine, "seconds": each.seconds, "source_rows": each.source_rows}
        rows += [
            whole | {
                "stage": number,
                "stage_seconds": stage.seconds,
                "tasks": stage.tasks,
                "changes": stage.changes,
                "cpu_seconds": stage.cpu_seconds,
                "shuffled_bytes": stage.shuffled_bytes,
                "skew": stage.skew,
            }
            for number, stage in enumerate(each.stages)
        ] or [whole]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)
