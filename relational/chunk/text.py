"""Changes as text: one per line, `+`, `-`, `U-` or `U+`, then the values, separated by blanks; `.` is NULL.

STRUCT, LIST and JSONB are JSON without blanks, BYTEA is hexadecimal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

import numpy as np
import pyarrow as pa


def format_changes(changes: Iterable[tuple[object, tuple]]) -> str:
    """The lines of (op, row) pairs."""
    return "\n".join(
        " ".join([str(op), *("." if value is None else _cell(value) for value in row)]) for op, row in changes
    )


def op_texts(ops: np.ndarray) -> pa.Array:
    """The text of each op, as it stands in a line."""
    return _texts().take(pa.Array.from_buffers(pa.uint8(), len(ops), [None, pa.py_buffer(np.ascontiguousarray(ops))]))


@cache
def _texts() -> pa.Array:
    from relational.chunk.stream_chunk import Op  # which imports this module

    texts = [str(op).encode() for op in Op]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def _cell(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_cell)
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)
