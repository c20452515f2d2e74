"""Changes as text: one per line, `+`, `-`, `U-` or `U+`, then the values, separated by blanks; `.` is NULL.

STRUCT, LIST and JSONB are JSON without blanks, BYTEA is hexadecimal."""

from __future__ import annotations

import json
from collections.abc import Iterable


def format_changes(changes: Iterable[tuple[object, tuple]]) -> str:
    """The lines of (op, row) pairs."""
    return "\n".join(
        " ".join([str(op), *("." if value is None else _cell(value) for value in row)]) for op, row in changes
    )


def _cell(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_cell)
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)
