"""Chunks from text such as `U- 1 a`, one change per line, as `StreamChunk.to_pretty` writes them.

A final `D` after the columns marks a hidden row. A first line may name the types by letters: I BIGINT, i INT, F DOUBLE,
f REAL, D NUMERIC, T VARCHAR, B BOOLEAN. Without it each column is the first of BIGINT, DOUBLE, BOOLEAN and VARCHAR that
parses all its values. STRUCT, LIST and JSONB are JSON without blanks, BYTEA is hexadecimal; their types need a schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal

import numpy as np

from relational.chunk import StreamChunk
from relational.types import DataType, Field, Schema, TypeKind

OPS = {"+": 0, "-": 1, "U+": 2, "U-": 3}
LETTERS = {
    "I": DataType.BIGINT,
    "i": DataType.INT,
    "F": DataType.DOUBLE,
    "f": DataType.REAL,
    "D": DataType.NUMERIC,
    "T": DataType.VARCHAR,
    "B": DataType.BOOLEAN,
}


def boolean(text: str) -> bool:
    return {"t": True, "true": True, "f": False, "false": False}[text]


READERS: dict[TypeKind, Callable[[str], object]] = {
    TypeKind.BOOLEAN: boolean,
    TypeKind.SMALLINT: int,
    TypeKind.INT: int,
    TypeKind.BIGINT: int,
    TypeKind.REAL: float,
    TypeKind.DOUBLE: float,
    TypeKind.NUMERIC: Decimal,
    TypeKind.VARCHAR: str,
    TypeKind.BYTEA: bytes.fromhex,
    TypeKind.JSONB: str,
    TypeKind.STRUCT: json.loads,
    TypeKind.LIST: json.loads,
}


def from_pretty(text: str, schema: Schema | None = None) -> StreamChunk:
    """The chunk that `text` shows. ValueError for a line that is not a change."""
    lines = [line.split() for line in text.strip().splitlines() if line.strip()]
    if lines and lines[0][0] not in OPS:
        header = lines.pop(0)
        if schema is None:
            schema = Schema(Field(f"c{index}", LETTERS[letter]) for index, letter in enumerate(header))
    for line in lines:
        if line[0] not in OPS:
            raise ValueError(f"a change begins with + - U- or U+, not {line[0]!r}")
    width = len(schema) if schema is not None else min((len(line) - 1 for line in lines), default=0)
    cells = [line[1 : width + 1] for line in lines]
    if schema is None:
        schema = Schema(Field(f"c{index}", inferred(row[index] for row in cells)) for index in range(width))
    shown = [line[width + 1 :] != ["D"] for line in lines]
    readers = [READERS[data_type.kind] for data_type in schema.types]
    rows = [
        tuple(None if cell == "." else read(cell) for cell, read in zip(row, readers, strict=True))
        for row in cells
    ]
    chunk = StreamChunk.from_rows(schema, [(OPS[line[0]], row) for line, row in zip(lines, rows, strict=True)])
    return chunk if all(shown) else chunk.with_visibility(np.array(shown, dtype=np.uint8))


def inferred(cells: Iterable[str]) -> DataType:
    values = [cell for cell in cells if cell != "."]
    for data_type in (DataType.BIGINT, DataType.DOUBLE, DataType.BOOLEAN):
        try:
            for value in values:
                READERS[data_type.kind](value)
        except (ValueError, KeyError):
            continue
        return data_type
    return DataType.VARCHAR
