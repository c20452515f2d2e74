"""TableRules: what a store must know of one table's keys, in terms of bytes, without a schema.

Rules are registered with a commit and are part of the version and of every task, so that building, reading and
compacting files needs nothing but the version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hummock.base.json_fields import MALFORMED, U32, check_flag, check_natural, natural
from hummock.base.key import KeyRange
from hummock.base.key_watermark import KeyWatermark, joined_watermarks, needed_watermarks, passed_ranges
from hummock.epoch import Epoch
from hummock.errors import InvalidOption

VNODES_LIMIT = (1 << 16) + 1
NULL_TAG_LIMIT = 1 << 8


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One leading column of a memcomparable table key: its null tag alone, or another tag and a payload.

    The payload has `width` bytes; width 0 means a string: 00 if empty, else 01 and groups of eight bytes, each with a
    ninth that is 9 while more groups follow. All bytes of `inverted` columns are complemented. `InvalidOption` for a
    tag that is no byte, or another width than an integer of 32 bits.
    """

    null_tag: int                       # as stored in the key, complemented if the column is
    width: int
    inverted: bool = False

    def __post_init__(self) -> None:
        check_natural("null_tag", self.null_tag, NULL_TAG_LIMIT)
        check_natural("width", self.width, U32)
        check_flag("inverted", self.inverted)


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """The prefix of a user key whose hash enters the filter besides that of the whole key.

    Either `fixed_bytes` of the user key, including table id and vnode, or those six bytes and `columns`. A key that is
    shorter, or does not parse, has no such prefix. `InvalidOption` for a rule of both or neither.
    """

    fixed_bytes: int = 0
    columns: tuple[KeyColumn, ...] = ()

    def __post_init__(self) -> None:
        check_natural("fixed_bytes", self.fixed_bytes, U32)
        _check_items("columns", self.columns, KeyColumn)
        if (self.fixed_bytes > 0) == bool(self.columns):
            raise InvalidOption("fixed_bytes", self.fixed_bytes, "0 beside columns, else above 0: a prefix rule counts "
                                                                 "either bytes or columns")

    def to_json(self) -> dict[str, Any]:
        """As the metadata have it; `from_json` reads it."""
        return {"fixed_bytes": self.fixed_bytes,
                "columns": [[column.null_tag, column.width, column.inverted] for column in self.columns]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PrefixRule:
        """The inverse of `to_json`. KeyError, TypeError or ValueError when bad."""
        columns = tuple(KeyColumn(tag, width, bool(inverted)) for tag, width, inverted in record["columns"])
        return cls(record["fixed_bytes"], columns)


@dataclass(frozen=True, slots=True)
class TableRules:
    """`ttl_ms`: a row is hidden from readers whose epoch is that much later than its own; 0: never.

    `watermarks`: newest first. `vnode_groups`: compaction splits the table's files at the borders of as many equal
    groups of its `vnode_count` vnodes, and at the table's beginning and end; 1: no splits. `InvalidOption` for what the
    metadata could not hold.
    """

    prefix: PrefixRule | None = None
    ttl_ms: int = 0
    watermarks: tuple[KeyWatermark, ...] = ()
    vnode_groups: int = 1
    vnode_count: int = 256

    def __post_init__(self) -> None:
        if self.prefix is not None and not isinstance(self.prefix, PrefixRule):
            raise InvalidOption("prefix", self.prefix, "a PrefixRule, or None")
        check_natural("ttl_ms", self.ttl_ms)
        _check_items("watermarks", self.watermarks, KeyWatermark)
        for name, count in (("vnode_groups", self.vnode_groups), ("vnode_count", self.vnode_count)):
            if type(count) is not int or not 0 < count < VNODES_LIMIT:
                raise InvalidOption(name, count, f"an integer of 1 .. {VNODES_LIMIT - 1}")

    @property
    def is_empty(self) -> bool:
        """Whether a store treats the table as one without rules."""
        return self.prefix is None and not self.ttl_ms and not self.watermarks and self.vnode_groups <= 1

    def borders(self, table_id: int) -> list[tuple[int, int]]:
        """(table id, vnode) pairs before which files are split because of this table."""
        if self.vnode_groups <= 1:
            return []
        firsts = [-(-self.vnode_count * group // self.vnode_groups) for group in range(self.vnode_groups)]
        return [*((table_id, first) for first in firsts), (table_id + 1, 0)]

    def to_json(self) -> dict[str, Any]:
        """As the metadata have it; `from_json` reads it."""
        prefix = None if self.prefix is None else self.prefix.to_json()
        return {"prefix": prefix, "ttl_ms": self.ttl_ms, "vnode_groups": self.vnode_groups,
                "vnode_count": self.vnode_count,
                "watermarks": [mark.to_json() for mark in self.watermarks]}

    def mark_at(self, epoch: Epoch) -> KeyWatermark | None:
        """The watermark for readers at `epoch`."""
        return next((mark for mark in self.watermarks if mark.epoch <= epoch), None)

    def passed_between(self, table_id: int, since: Epoch, until: Epoch) -> list[KeyRange]:
        """Ranges outside which watermarks hide the same user keys from readers at both epochs; ascending."""
        before, after = self.mark_at(since), self.mark_at(until)
        return [] if after is None or after is before else passed_ranges(table_id, before, after)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TableRules:
        """The inverse of `to_json`; 0 vnodes or groups, which older releases accepted, are 1. KeyError, TypeError or
        ValueError when bad.
        """
        prefix = None if record["prefix"] is None else PrefixRule.from_json(record["prefix"])
        watermarks = tuple(map(KeyWatermark.from_json, record["watermarks"]))
        return cls(prefix, record["ttl_ms"], watermarks, natural(record["vnode_groups"], VNODES_LIMIT) or 1,
                   natural(record.get("vnode_count", 256), VNODES_LIMIT) or 1)


def _check_items(name: str, items: object, kind: type) -> None:
    """Raises `InvalidOption` unless the value of field `name` is a tuple of objects of class `kind`."""
    if not isinstance(items, tuple) or not all(isinstance(item, kind) for item in items):
        raise InvalidOption(name, items, f"a tuple of {kind.__name__}")


Tables = Mapping[int, TableRules]       # by table id
NO_RULES: Tables = {}


def next_tables(known: Tables, changes: Mapping[int, TableRules | None], safe_epoch: Epoch) -> Tables:
    """The rules after `changes` (None removes a table's), still valid for readers from `safe_epoch` on.

    A change of a table's other rules keeps its watermarks. A table whose rules say nothing has none. Returns `known`
    itself if nothing changes.
    """
    if not changes and not any(len(rules.watermarks) > 1 for rules in known.values()):
        return known
    tables = {**known, **{table_id: rules if table_id not in known or rules is None else
                          replace(rules, watermarks=joined_watermarks(known[table_id].watermarks, rules.watermarks))
                          for table_id, rules in changes.items()}}
    kept = {table_id: rules if len(rules.watermarks) < 2 else
            replace(rules, watermarks=needed_watermarks(rules.watermarks, safe_epoch))
            for table_id, rules in tables.items() if rules is not None and not rules.is_empty}
    return known if kept == known else kept


def check_table_id(table_id: Any) -> None:
    """Raises `InvalidOption` for what is no id of a table."""
    if type(table_id) is not int or not 0 <= table_id < U32:
        raise InvalidOption("table id", table_id, f"an integer of 0 .. {U32 - 1}")


def check_tables(tables: Any) -> None:
    """Raises `InvalidOption` unless these are rules by table id (None: no rules) that a record holds and gives back: no
    process writes what none could read.
    """
    if not isinstance(tables, Mapping):
        raise InvalidOption("tables", tables, "a dict of TableRules by table id")
    for table_id, rules in tables.items():
        check_table_id(table_id)
        if rules is not None and not isinstance(rules, TableRules):
            raise InvalidOption(f"rules of table {table_id}", rules, "TableRules, or None")
    for table_id, rules in tables.items():
        try:
            found = tables_from_json(json.loads(json.dumps(tables_to_json({table_id: rules}))))
        except MALFORMED as error:
            raise InvalidOption(f"rules of table {table_id}", rules, f"valid: {error}") from error
        if found != {table_id: rules}:
            raise InvalidOption(f"rules of table {table_id}", rules, f"what a record gives back, not {found[table_id]}")


def check_watermark(table_id: Any, watermark: Any) -> None:
    """Raises `InvalidOption` for what is no id of a table, or no key watermark."""
    check_table_id(table_id)
    if not isinstance(watermark, KeyWatermark):
        raise InvalidOption("watermark", watermark, "a KeyWatermark")


def tables_format(tables: Mapping[int, TableRules | None]) -> int:
    """The format of a record with these rules: 1, or 2 if a mark is of several vnodes, which format 1 has not."""
    marks = (mark for rules in tables.values() if rules is not None for key in rules.watermarks for mark in key.marks)
    return 2 if any(first < last for first, last, _ in marks) else 1


def tables_to_json(tables: Mapping[int, TableRules | None]) -> list[list[Any]]:
    return [[table_id, None if rules is None else rules.to_json()] for table_id, rules in sorted(tables.items())]


def tables_from_json(records: list[list[Any]]) -> dict[int, TableRules | None]:
    return {natural(table_id, U32): None if rules is None else TableRules.from_json(rules)
            for table_id, rules in records}
