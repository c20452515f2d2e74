"""How a change feed divides its key range: where a key watermark moved between the epochs, and where none did."""

from __future__ import annotations

from collections.abc import Sequence

from hummock.base.key import KeyRange
from hummock.base.table_rules import TableRules
from hummock.epoch import Epoch
from hummock.version import HummockVersion


def ruled_tables(version: HummockVersion, start: bytes, end: bytes | None) -> list[tuple[int, TableRules]]:
    """The tables whose rules may hide rows of [start, end), ascending by id; dropped ones have no rows to hide."""
    found = []
    for table_id, rules in sorted(version.tables.items()):
        table = KeyRange.table(table_id)
        is_met = (end is None or table.start < end) and (table.end is None or start < table.end)
        if is_met and table_id not in version.dropped_tables:
            found.append((table_id, rules))
    return found


def parts_between(
    start: bytes, end: bytes | None, tables: Sequence[tuple[int, TableRules]], since: Epoch, until: Epoch
) -> list[tuple[bytes, bytes | None, bool]]:
    """[start, end) as ascending ranges, each with whether a watermark may have passed its keys between the epochs."""
    parts: list[tuple[bytes, bytes | None, bool]] = []
    at = start
    for table_id, rules in tables:
        for passed in rules.passed_between(table_id, since, until):
            first = max(passed.start, at)
            last = passed.end if end is None or (passed.end is not None and passed.end < end) else end
            if last is not None and first >= last:
                continue
            parts += [(at, first, False)] if at < first else []
            parts.append((first, last, True))
            if last is None:
                return parts
            at = last
    return [*parts, (at, end, False)] if end is None or at < end else parts
