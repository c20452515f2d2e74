"""Bulk loads without Spark: both stages of the job run in this process, with a shuffle through lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from hummock.base.process import installed_version
from relational.spark import load_encoder, load_writer
from relational.spark.bulk_load import joined
from relational.spark.frame_columns import FrameColumns
from relational.spark.load_encoder import encode_rows
from relational.spark.load_spec import LoadPart
from relational.spark.load_writer import write_rows
from relational.types import DataType
from stream.session import bulk_load


@dataclass
class LocalFrame:
    """Rows by column that stand in for a DataFrame; `during` is called when the job has written its files."""

    columns: dict[str, list]
    types: dict[str, str]
    during: Callable[[], object] = lambda: None
    specs: list = field(default_factory=list)

    def batches(self):
        table = pa.table({name: pa.array(values, DataType.parse(self.types[name]).arrow)
                          for name, values in self.columns.items()})
        return table.to_batches(max_chunksize=40)


def install(monkeypatch, objects=None) -> None:
    """Makes sessions load LocalFrames, by tasks in this process, which write to `objects` if the store is in memory."""
    def write_frame(frame, columns, spec, **callbacks):
        frame.specs.append(spec)
        monkeypatch.setattr(load_encoder, "_task_partition", lambda: 0)
        sent = pa.Table.from_batches(encode_rows(installed_version(), spec.to_bytes(), frame.batches()))
        parts = []
        for partition in range(spec.partitions):
            mine = sent.filter(pc.equal(sent["part"], partition)).to_batches()
            parts += [LoadPart.from_bytes(answer.column(0)[0].as_py()) for answer in write_rows(spec.to_bytes(), mine)]
        frame.during()
        return joined(parts, spec, "local")

    def matched(frame, table):
        names = list(frame.columns)
        return FrameColumns((), tuple(names.index(each.name) if each.name in names else -1 for each in table.columns))

    monkeypatch.setattr(bulk_load, "write_frame", write_frame)
    monkeypatch.setattr(bulk_load, "matched_columns", matched)
    monkeypatch.setattr(bulk_load, "frame_types",
                        lambda frame: {name: DataType.parse(text) for name, text in frame.types.items()})
    monkeypatch.setattr(bulk_load, "partitions_of", lambda frame, vnodes: 3)
    if objects is not None:
        monkeypatch.setattr(bulk_load, "shared_url", lambda url: url)
        monkeypatch.setattr(load_writer, "task_store", lambda url: objects)
