"""The rules of a table in the store, from its catalog entry: prefixes for filters, and the time to live.

The catalog is the only source: the rules of a version are those of the catalog's tables, and they change in the
transactions that change the rows of these. So nothing that creates or alters a table handles rules. The key watermarks
beside them are the executors' (`StateTable.commit`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules, Tables
from relational.catalog.objects import RowFormat, TableCatalog
from relational.catalog.records import TABLE_PREFIX
from relational.encoding.key.encoder import KeyEncoder
from relational.types.data_type import TypeKind

DELIMITED = frozenset((TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.LIST))
"""Types whose payload in a key ends as that of a KeyColumn of width 0; those of NUMERIC, JSONB and STRUCT do not."""


def rules_of(table: TableCatalog) -> TableRules:
    """The rules of a table's rows; empty ones for an object without rows of its own."""
    if not table.kind.has_rows:
        return TableRules()
    return TableRules(prefix_of(table), table.ttl_ms, vnode_count=table.vnode_count)


def prefix_of(table: TableCatalog) -> PrefixRule | None:
    """The prefix by which rows are looked up: the first `prefix_columns` of the key; of a table with an entry per value
    the whole key of the row, by which its entries are found. A rule ends before a column whose end the store cannot
    find [S11]; None if that is the first, or if no lookup is by a prefix.
    """
    count = table.prefix_columns
    if table.row_format is RowFormat.CELL:
        count = count or len(table.pk)
    columns = []
    for key in table.pk[:count]:
        encoder = KeyEncoder([table.columns[key.column].data_type], [key.order])
        if not encoder.fixed_bytes > 0 and table.columns[key.column].data_type.kind not in DELIMITED:
            break
        null_tag = encoder.encode_row((None,))[0]
        columns.append(KeyColumn(null_tag, max(encoder.fixed_bytes - 1, 0), key.order.descending))
    return PrefixRule(columns=tuple(columns)) if columns else None


def rule_changes(rows: Mapping[str, bytes]) -> dict[int, TableRules]:
    """The rules of the tables whose catalog rows are among `rows`, those that a transaction writes, by table id."""
    tables = (TableCatalog.from_json(json.loads(row)) for key, row in rows.items() if key.startswith(TABLE_PREFIX))
    return {table.id: rules_of(table) for table in tables}


def missing_rules(tables: Iterable[TableCatalog], known: Tables) -> dict[int, TableRules]:
    """The rules of those tables for which a store, whose rules are `known`, has others. A store has none of tables
    whose rules the release that created them did not register.
    """
    wanted = {table.id: rules_of(table) for table in tables}
    return {table_id: rules for table_id, rules in wanted.items()
            if rules != (replace(known[table_id], watermarks=()) if table_id in known else None)
            and (table_id in known or not rules.is_empty)}
