"""The catalog: ids, names, dependencies, and DDL as operations of the caller's transaction."""

import pytest

from hummock.errors import MetaStoreCorrupt, PreconditionFailed
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import (
    FORMAT_VERSION,
    ColumnCatalog,
    ConflictBehaviour,
    RowFormat,
    TableCatalog,
    TableKind,
    value_columns,
)
from relational.catalog.records import NEXT_ID, VERSION
from relational.errors import CatalogError, DependencyError, Duplicate, NotFound
from relational.types import DataType, OrderType, SortKey, VnodeRule


def draft(name, kind=TableKind.TABLE, dependencies=(), **options):
    columns = (
        ColumnCatalog("id", 0, DataType.BIGINT),
        ColumnCatalog("price", 1, DataType.numeric(10, 2)),
        ColumnCatalog("_row_id", 2, DataType.BIGINT, is_hidden=True),
    )
    pk = (SortKey(0, OrderType(descending=True)), SortKey(2))
    return TableCatalog(
        0,
        name,
        kind,
        columns,
        pk,
        (0, 2),
        (0,),
        value_columns(columns, pk),
        dependencies=dependencies,
        **options,
    )


@pytest.fixture
def store():
    return MemoryMetaStore()


def test_a_catalog_survives_its_json():
    table = draft("t", conflict=ConflictBehaviour.IGNORE, connector={"connector": "files", "path": "x"},
                  row_format=RowFormat.CELL)
    assert TableCatalog.from_json(table.to_json()) == table
    with pytest.raises(ValueError, match="format 0 of the catalog of 't'"):
        TableCatalog.from_json(table.to_json() | {"version": 0})


def test_a_vnode_rule_is_stored_where_it_is_not_the_hash():
    table = draft("t", vnode_rule=VnodeRule.WIDE_ROW_ID, version=FORMAT_VERSION)
    assert TableCatalog.from_json(table.to_json()) == table
    assert table.to_json()["vnode_rule"] == "wide row id"
    assert "vnode_rule" not in draft("t").to_json()
    assert TableCatalog.from_json(draft("t").to_json()).vnode_rule is VnodeRule.HASH
    with pytest.raises(ValueError, match="another"):
        TableCatalog.from_json(table.to_json() | {"vnode_rule": "another"})


def test_keys_are_new_where_they_are_generated_and_nothing_is_retracted():
    rules = [(rule, append_only) for rule in VnodeRule for append_only in (False, True)]
    new = [each for each in rules if draft("t", vnode_rule=each[0], is_append_only=each[1]).inserts_new_keys]
    assert new == [(VnodeRule.ROW_ID, True), (VnodeRule.WIDE_ROW_ID, True)]


def test_value_holds_what_the_key_does_not_give_back():
    columns = tuple(
        ColumnCatalog(str(i), i, t) for i, t in enumerate((DataType.INT, DataType.DOUBLE, DataType.DATE))
    )
    assert value_columns(columns, (SortKey(0), SortKey(1))) == (1, 2)


def test_ids_are_given_once_even_if_the_ddl_fails(store):
    catalog = CatalogManager(store)
    first = catalog.create(draft("a"))
    planned, _ = catalog.plan_create(draft("b"))
    assert catalog.find("b") is None
    assert [first.id, planned.id, *CatalogManager(store).allocate_ids(2)] == [1, 2, 3, 4]


def test_a_table_exists_once_its_transaction_is_committed(store):
    catalog = CatalogManager(store)
    table, operations = catalog.plan_create(draft("t"))
    state = draft("t.state", TableKind.INTERNAL, (table.id,)).with_id(catalog.allocate_ids(1)[0])
    table, operations = catalog.plan_create(table, [state])
    with pytest.raises(NotFound):
        catalog.resolve("t")
    store.transaction(operations)
    catalog.refresh()
    assert catalog.resolve("t") == table == CatalogManager(store).get(table.id)
    assert catalog.internal_tables(table.id) == (state,)
    assert catalog.list() == (table,)


def test_a_taken_name_is_refused_at_plan_and_at_commit(store):
    catalog, other = CatalogManager(store), CatalogManager(store)
    _, operations = catalog.plan_create(draft("t"))
    other.create(draft("t"))
    with pytest.raises(PreconditionFailed):
        store.transaction(operations)
    catalog.refresh()
    with pytest.raises(Duplicate, match="already a table 't': IF NOT EXISTS leaves it as it is, DROP removes it"):
        catalog.plan_create(draft("t"))


def test_a_view_is_not_created_over_what_was_dropped(store):
    catalog = CatalogManager(store)
    table = catalog.create(draft("t"))
    _, operations = catalog.plan_create(draft("v", TableKind.MATERIALIZED_VIEW, (table.id,)))
    catalog.drop("t")
    with pytest.raises(PreconditionFailed):
        store.transaction(operations)


def test_what_is_read_is_dropped_only_with_its_readers(store):
    catalog = CatalogManager(store)
    table = catalog.create(draft("t"))
    view = catalog.create(draft("v", TableKind.MATERIALIZED_VIEW, (table.id,)))
    above = catalog.create(draft("w", TableKind.MATERIALIZED_VIEW, (view.id,)))
    with pytest.raises(DependencyError, match="read by v") as caught:
        catalog.drop("t")
    assert caught.value.dependents == ("v",)
    assert catalog.drop("t", cascade=True) == (above, view, table)
    assert catalog.list() == () == tuple(row for row in store.list("catalog/") if row[0] not in (NEXT_ID, VERSION))


def test_followers_are_dropped_only_by_cascade(store):
    catalog = CatalogManager(store)
    table, other = catalog.create(draft("t")), catalog.create(draft("other"))
    index = catalog.create(draft("i", TableKind.INDEX, (table.id,)))
    rows = {"stream/cursor/s": table.id, "stream/cursor/of_index": index.id, "stream/cursor/left": other.id}
    store.transaction(MetaOperations(put={key: b'{"table": %d}' % number for key, number in rows.items()}))
    with pytest.raises(DependencyError, match="read by subscription s, subscription of_index; DROP … CASCADE"):
        catalog.drop("t")
    with pytest.raises(DependencyError, match="subscription s"):
        catalog.plan_replace(table.id, draft("t"))
    plan = catalog.plan_drop("t", cascade=True)
    assert plan.followers == ("of_index", "s")
    catalog.apply(plan.operations)
    assert [key for key, _ in store.list("stream/cursor/")] == ["stream/cursor/left"]
    store.transaction(MetaOperations(put={"stream/cursor/left": b"{}"}))
    with pytest.raises(MetaStoreCorrupt, match="stream/cursor/left"):
        catalog.drop("other")


def test_unknown_names_get_a_suggestion(store):
    catalog = CatalogManager(store)
    catalog.create(draft("orders"))
    with pytest.raises(NotFound, match="did you mean 'orders'"):
        catalog.resolve("order")


@pytest.mark.parametrize("name", ["", "x" * 64, "a\nb"])
def test_a_name_must_be_printable_and_short(store, name):
    with pytest.raises(CatalogError):
        CatalogManager(store).plan_create(draft(name))


def test_any_printable_name_is_kept(store):
    CatalogManager(store).create(draft("Größe/ %1"))
    assert CatalogManager(store).resolve("Größe/ %1").name == "Größe/ %1"
