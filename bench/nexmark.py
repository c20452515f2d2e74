"""Events of the Nexmark connector as Arrow, and bids as Arrow IPC files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from stream.connector.nexmark import BID_COLUMNS, DEFAULT_RATE, TYPES

COLUMNS = ", ".join(f"{name} {column[0]}" for name, column in BID_COLUMNS.items())
BATCH_ROWS = 65_536
SEED = 42


def batch(
    kind: str, names: Sequence[str], first: int, rows: int, *, seed: int = 0, rate: int = DEFAULT_RATE
) -> pa.RecordBatch:
    """The columns `names` of rows `first` to `first + rows` of a type of events."""
    return pa.record_batch(TYPES[kind].compute(names, seed, rate, first, 1, rows), names=list(names))


def write_bids(
    path: Path, first: int, rows: int, columns: list[str] | None = None, batch_rows: int = BATCH_ROWS
) -> None:
    """An Arrow IPC file of the bids number `first` to `first + rows`, of these columns or all."""
    names = list(BID_COLUMNS) if columns is None else columns
    starts = range(first, first + rows, batch_rows)
    write_file(path, (batch("bid", names, at, min(batch_rows, first + rows - at), seed=SEED) for at in starts))


def write_file(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """An Arrow IPC file, durable: while much is being written back, a checkpoint of a run waits for it."""
    following = iter(batches)
    begun = next(following)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, begun.schema) as writer:
        writer.write_batch(begun)
        for each in following:
            writer.write_batch(each)
    with path.open("rb") as written:
        os.fsync(written)
