"""The rules of tables in the store: the prefix of a key as its bytes say it, from the catalog alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hummock.base.key import USER_KEY_PREFIX_BYTES
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.sstable.filter.prefix_extractor import key_prefix
from relational.catalog.objects import RowFormat, TableCatalog, TableKind
from relational.catalog.records import encode, table_key, table_name_key
from relational.chunk import DataChunk
from relational.encoding.key.encoder import KeyEncoder
from relational.table.row_serde import RowSerde
from relational.table.store_rules import missing_rules, prefix_of, rule_changes, rules_of
from relational.types import DESCENDING, DataType, Field, Schema, SortKey, TypeKind
from tests.relational.random_rows import ALL, ORDERS, columns_of, random_rows
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed

UNDELIMITED = (TypeKind.NUMERIC, TypeKind.JSONB, TypeKind.STRUCT)


def keyed(types, orders=None, prefix_columns=0, **options) -> TableCatalog:
    """An internal table whose columns are all in the key."""
    schema = Schema(tuple(Field(f"c{number}", kind) for number, kind in enumerate(types)))
    options |= {"kind": TableKind.INTERNAL, "prefix_columns": prefix_columns}
    table = table_catalog("t", schema, range(len(types)), **options)
    return table if orders is None else replace(
        table, pk=tuple(SortKey(number, order) for number, order in enumerate(orders)))


@pytest.mark.parametrize("seed", range(60))
def test_a_prefix_ends_where_the_key_of_its_columns_ends(seed):
    """For every type, order and value, NULL too; keys in the store and prefixes that are looked up agree."""
    rng = random.Random(f"{run_seed()} {seed}")
    types = [rng.choice(ALL) for _ in range(rng.randint(1, 4))]
    orders = [rng.choice(ORDERS) for _ in types]
    table = keyed(types, orders, rng.randint(1, len(types)))
    rule, kinds = prefix_of(table), [kind.kind for kind in types[:table.prefix_columns]]
    counted = next((at for at, kind in enumerate(kinds) if kind in UNDELIMITED), len(kinds))
    assert (0 if rule is None else len(rule.columns)) == counted
    if rule is None:
        return
    rows = DataChunk(columns_of(types, random_rows(rng, types, 40)))
    keys, _ = RowSerde(table).keys_of(rows)
    leading = KeyEncoder(types[:counted], orders[:counted]).encode(rows.columns[:counted])
    for row in range(rows.capacity):
        size = key_prefix(rule).length(keys[row])
        assert keys[row][USER_KEY_PREFIX_BYTES:size] == leading[row]
        assert key_prefix(rule).length(keys[row][:size]) == size


def test_a_prefix_is_of_the_columns_that_lookups_have():
    types = [DataType.BIGINT, DataType.VARCHAR, DataType.numeric(10, 2), DataType.INT]
    assert prefix_of(keyed(types)) is None
    both = PrefixRule(columns=(KeyColumn(1, 8), KeyColumn(1, 0)))
    assert [prefix_of(keyed(types, prefix_columns=count)) for count in (1, 2, 3, 4)] == [
        PrefixRule(columns=(KeyColumn(1, 8),)), both, both, both]
    descending = keyed(types[:2], (DESCENDING, DESCENDING), 2)
    assert prefix_of(descending).columns == (KeyColumn(0xFE, 8, True), KeyColumn(0xFE, 0, True))


def test_entries_of_values_are_found_by_the_key_of_their_row():
    table = keyed([DataType.BIGINT, DataType.INT], row_format=RowFormat.CELL)
    assert prefix_of(table) == PrefixRule(columns=(KeyColumn(1, 8), KeyColumn(1, 4)))
    assert prefix_of(replace(table, prefix_columns=1)) == PrefixRule(columns=(KeyColumn(1, 8),))


def test_rules_are_those_of_the_catalog_rows_that_are_written():
    plain = table_catalog("plain", Schema.of(a="int"), (0,), table_id=3)
    kept = replace(keyed([DataType.INT, DataType.INT], prefix_columns=1), id=4, vnode_count=7)
    brief = replace(plain, id=5, is_append_only=True, ttl_ms=60_000, vnode_count=1)
    view = replace(plain, id=6, kind=TableKind.VIEW, ttl_ms=5)
    rows = {table_key(table.id): encode(table) for table in (plain, kept, brief, view)}
    rows |= {table_name_key(0, "plain"): b"3", "catalog/version": b"9"}
    rules = {3: TableRules(), 4: TableRules(prefix_of(kept), vnode_count=7),
             5: TableRules(ttl_ms=60_000, vnode_count=1), 6: TableRules()}
    assert rule_changes(rows) == rules == {table.id: rules_of(table) for table in (plain, kept, brief, view)}
    assert rule_changes({}) == {}


def test_rules_that_a_store_lacks_are_found_and_watermarks_are_none_of_them():
    plain = table_catalog("plain", Schema.of(a="int"), (0,), table_id=3, vnode_count=9)
    kept = replace(keyed([DataType.INT, DataType.INT], prefix_columns=1), id=4)
    mark = KeyWatermark(1 << 16, ((0, 255, b"k"),))
    assert missing_rules([plain, kept], {}) == {4: rules_of(kept)}
    known = {3: TableRules(watermarks=(mark,), vnode_count=9), 4: replace(rules_of(kept), watermarks=(mark,)),
             9: TableRules(ttl_ms=5)}
    assert missing_rules([plain, kept], known) == {}
    known[3] = TableRules(ttl_ms=5, watermarks=(mark,))
    assert missing_rules([plain, kept], known) == {3: rules_of(plain)}
