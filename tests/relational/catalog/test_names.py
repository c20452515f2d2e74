"""Names, schemas and databases; catalog versions and their notification."""

import threading

import pytest

from hummock.errors import PreconditionFailed
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.object_store.memory import MemoryObjectStore
from relational.catalog.alter import with_column
from relational.catalog.manager import CatalogManager
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import CatalogError, DependencyError, Duplicate, NotFound
from relational.types import DataType, Schema
from tests.support.drivers.catalogs import table_catalog


@pytest.fixture
def store():
    return MemoryMetaStore()


@pytest.fixture
def catalog(store):
    return CatalogManager(store)


def draft(name, schema_id=0, kind=TableKind.TABLE, **options):
    columns = Schema.of(k="bigint", v="int")
    return table_catalog(name, columns, (0,), table_id=0, kind=kind, schema_id=schema_id, **options)


def create_schema(catalog, name, database="dev"):
    schema, operations = catalog.plan_create_schema(name, database)
    catalog.apply(operations)
    return schema


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t", ("t",)),
        ("shop.t", ("shop", "t")),
        ("public.t", ("t",)),
        ("other.public.t", ("other", "public", "t")),
        ("dev.shop.t", ("shop", "t")),
        ('"a.b"', ("a.b",)),
        ('shop."a""b"', ("shop", 'a"b')),
        ("Größe %1", ("Größe %1",)),
    ],
)
def test_a_name_is_read_with_its_schema_and_database(text, parts):
    assert ObjectName.parse(text).parts == parts
    assert ObjectName.of(parts) == ObjectName.parse(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b', "a.b.c.d"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(CatalogError):
        ObjectName.parse(text)


def test_a_name_is_unique_in_its_schema(catalog):
    shop = create_schema(catalog, "shop")
    one, two = catalog.create(draft("t")), catalog.create(draft("t", shop.id))
    assert catalog.resolve("t") == one and catalog.resolve(ObjectName("t", "shop")) == two
    with pytest.raises(Duplicate):
        catalog.create(draft("t", shop.id))
    assert str(catalog.snapshot.name_of(two)) == "shop.t"
    assert catalog.list() == (one, two) and catalog.list(schema_id=shop.id) == (two,)
    catalog.drop("t")
    assert CatalogManager(catalog._store).resolve(ObjectName("t", "shop")) == two


def test_a_name_that_exists_elsewhere_is_shown(catalog):
    shop = create_schema(catalog, "shop")
    catalog.create(draft("orders", shop.id))
    with pytest.raises(NotFound, match=r"no table or view 'orders'; there is shop\.orders"):
        catalog.resolve("orders")
    with pytest.raises(NotFound, match=r"no table or view 'shop\.order'; did you mean 'orders'"):
        catalog.resolve(ObjectName("order", "shop"))
    with pytest.raises(NotFound, match="no schema 'shp'; did you mean 'shop'"):
        catalog.resolve(ObjectName("orders", "shp"))
    with pytest.raises(NotFound, match="no database 'devv'; did you mean 'dev'"):
        catalog.resolve(ObjectName("orders", "shop", "devv"))


def test_a_schema_with_content_is_dropped_with_cascade_only(catalog, store):
    shop = create_schema(catalog, "shop")
    table = catalog.create(draft("t", shop.id))
    reader = catalog.create(draft("r", kind=TableKind.MATERIALIZED_VIEW, dependencies=(table.id,)))
    with pytest.raises(DependencyError, match=r"holds shop\.t; DROP SCHEMA … CASCADE") as caught:
        catalog.plan_drop_schema("shop")
    assert caught.value.dependents == ("shop.t",)
    plan = catalog.plan_drop_schema("shop", cascade=True)
    assert plan.dropped == (reader, table)
    catalog.apply(plan.operations)
    assert {key for key, _ in store.list("catalog/")} == {"catalog/next_id", "catalog/version"}


def test_a_database_has_schemas_of_its_own(catalog):
    database, operations = catalog.plan_create_database("other")
    catalog.apply(operations)
    create_schema(catalog, "shop", "other")
    public = catalog.resolve_schema("public", "other")
    table = catalog.create(draft("t", public.id))
    assert catalog.resolve(ObjectName("t", "public", "other")) == table
    assert database.id not in (public.id, 0)
    with pytest.raises(NotFound):
        catalog.resolve("t")
    with pytest.raises(Duplicate):
        catalog.plan_create_database("other")
    with pytest.raises(DependencyError, match=r"holds other\.public\.t"):
        catalog.plan_drop_database("other")
    catalog.drop(ObjectName("t", "public", "other"))
    catalog.apply(catalog.plan_drop_database("other").operations)
    assert list(catalog.snapshot.databases) == list(catalog.snapshot.schemas) == [0]


def test_what_is_always_there_stays(catalog):
    with pytest.raises(CatalogError, match="'public' is always there"):
        catalog.plan_drop_schema("public", cascade=True)
    with pytest.raises(CatalogError, match="'dev' is always there"):
        catalog.plan_drop_database("dev")


def test_ids_are_never_used_again(catalog):
    ids = []
    for _ in range(5):
        shop = create_schema(catalog, "shop")
        ids += [shop.id, catalog.create(draft("t", shop.id)).id]
        catalog.apply(catalog.plan_drop_schema("shop", cascade=True).operations)
    assert len(set(ids)) == len(ids) and ids == sorted(ids)


def test_of_two_changes_planned_on_one_version_one_is_carried_out(catalog, store):
    other = CatalogManager(store)
    table = catalog.create(draft("t"))
    other.refresh()
    _, first = catalog.plan_create(draft("a"))
    second = other.plan_drop_column(table.id, "v")[1].operations
    third = other.plan_create_schema("s")[1]
    catalog.apply(first)
    for late in (second, third):
        with pytest.raises(PreconditionFailed, match="catalog/version"):
            other.apply(late)
    other.refresh()
    assert other.version == catalog.version == 2
    other.apply(other.plan_create_schema("s")[1])


def test_nothing_is_made_in_a_schema_that_was_dropped_meanwhile(catalog):
    shop = create_schema(catalog, "shop")
    catalog.apply(catalog.plan_drop_schema("shop").operations)
    with pytest.raises(NotFound, match="schema of 't' was dropped meanwhile"):
        catalog.plan_create(draft("t", shop.id))


def test_columns_that_are_read_are_named_with_their_readers(catalog):
    table = catalog.create(draft("t"))
    key, value = (table.id, 0), (table.id, 1)
    one = catalog.create(draft("one", kind=TableKind.VIEW, dependencies=(table.id,), reads=(key,)))
    catalog.create(draft("z", kind=TableKind.VIEW, dependencies=(table.id,), reads=(key, value)))
    catalog.create(draft("old", kind=TableKind.MATERIALIZED_VIEW, dependencies=(table.id,)))
    with pytest.raises(DependencyError, match="read by old, z; DROP COLUMN … CASCADE") as caught:
        catalog.plan_drop_column(table.id, "v")
    assert caught.value.dependents == ("old", "z")
    altered, plan = catalog.plan_drop_column(table.id, "v", cascade=True)
    assert [each.name for each in plan.dropped] == ["old", "z"]
    catalog.apply(plan.operations)
    assert catalog.get(table.id) == altered and catalog.list() == (one, altered)


def test_a_table_goes_with_its_indexes_but_not_with_their_readers(catalog):
    table = catalog.create(draft("t"))
    index = catalog.create(draft("i", kind=TableKind.INDEX, dependencies=(table.id,)))
    catalog.create(draft("v", kind=TableKind.VIEW, dependencies=(index.id,)))
    with pytest.raises(DependencyError, match="table 't' is read by v; DROP"):
        catalog.drop("t")
    catalog.drop("v")
    assert catalog.drop("t") == (index, table)


def test_a_catalog_of_the_first_format_is_read():
    """It has no defaults, schemas or versions, and does not record which columns a view reads."""
    table = draft("v", kind=TableKind.MATERIALIZED_VIEW, dependencies=(3,)).with_id(4)
    record = table.to_json() | {"version": 1}
    for later in ("row_format", "schema_id", "reads", "schema_version", "next_column_id"):
        del record[later]
    for column in record["columns"]:
        del column["default"]
    assert TableCatalog.from_json(record) == table
    assert TableCatalog.from_json(record).reads is None


def test_a_column_is_not_added_to_another_version_than_it_was_planned_on(catalog):
    table = catalog.create(draft("t"))
    altered, plan = catalog.plan_drop_column(table.id, "v")
    catalog.apply(plan.operations)
    with pytest.raises(CatalogError, match="altered meanwhile: send the statement again"):
        catalog.plan_alter(altered)


# -- notification ------------------------------------------------------------------------------------------------------


def test_subscribers_know_of_a_change_when_it_returns(catalog):
    notified = []
    subscription = catalog.subscribe(lambda snapshot: notified.append((snapshot.version, len(snapshot.tables))))
    catalog.create(draft("a"))
    catalog.create(draft("b"))
    assert notified == [(1, 1), (2, 2)] and subscription.acknowledged == 2
    catalog.refresh()
    assert len(notified) == 2, "nothing changed"
    subscription.close()
    catalog.drop("a")
    assert len(notified) == 2


def test_listeners_get_versions_in_order_whoever_makes_them(store):
    catalogs = [CatalogManager(store) for _ in range(3)]
    notified = []
    catalogs[0].subscribe(lambda snapshot: notified.append(snapshot.version))

    def work(catalog, number):
        done = 0
        while done < 10:
            try:
                catalog.create(draft(f"t{number}_{done}"))
                done += 1
            except PreconditionFailed:
                catalog.refresh()
            catalogs[0].refresh()

    threads = [threading.Thread(target=work, args=(each, number)) for number, each in enumerate(catalogs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert catalogs[0].refresh().version == 30 and len(catalogs[0].list()) == 30
    assert notified == sorted(set(notified)) and notified[-1] == 30


def test_a_stale_catalog_reads_anew_at_a_name_that_it_does_not_know(store):
    stale, other = CatalogManager(store), CatalogManager(store)
    shop = create_schema(other, "shop")
    table = other.create(draft("t", shop.id))
    assert stale.resolve(ObjectName("t", "shop")) == table and stale.version == 2
    late = other.create(draft("late"))
    assert stale.find("late") == late and stale.find("never") is None


def test_a_reader_in_another_process_knows_what_there_is_at_the_version_it_reads(tmp_path):
    """The two processes share only the meta store and the object store."""
    objects = MemoryObjectStore()

    def process():
        meta = SqliteMetaStore(str(tmp_path / "meta.sqlite"))
        return meta, HummockManager(meta, objects)

    (meta, writer), (other_meta, reader) = process(), process()
    session, catalog, readers = writer.claim_writer(), CatalogManager(meta), CatalogManager(other_meta)
    readers.follow(reader.subscribe)
    notified = []
    readers.subscribe(lambda snapshot: notified.append(snapshot.version))
    table, operations = catalog.plan_create(draft("t"))
    writer.commit_epoch(session, 1 << 16, [], operations=operations)
    reader.refresh()
    assert reader.committed_epoch == 1 << 16 and readers.snapshot.get(table.id) == table and notified == [1]
    catalog.refresh()
    altered = with_column(table, "more", DataType.INT, 3)
    writer.commit_epoch(session, 2 << 16, [], operations=catalog.plan_alter(altered))
    writer.commit_epoch(session, 3 << 16, [])
    reader.refresh()
    assert readers.snapshot.get(table.id).schema_version == 1 and notified == [1, 2]
    for each in (writer, reader, meta, other_meta):
        each.close()

