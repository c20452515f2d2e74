"""User functions as rows of the meta store."""

import json
from dataclasses import replace

import pytest

from hummock.errors import FormatTooNew, PreconditionFailed
from hummock.meta.store.memory import MemoryMetaStore
from relational.catalog.functions import FunctionCatalog, functions_of
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.catalog.records import function_key
from relational.errors import CatalogError, DependencyError, Duplicate, FunctionsNotAllowed, NotFound
from relational.types import DataType, Field, SortKey
from relational.udf.function import RECORD, FunctionKind, UserFunction

BIGINT = DataType.BIGINT


def draft(name="f", source="def f(a): return a", **options):
    return FunctionCatalog(UserFunction(name, (Field("a", BIGINT),), BIGINT, source, "f", **options))


def view(name, *functions, plan=None):
    record = {"root": [{RECORD: each.function.to_json()} for each in functions]}
    return TableCatalog(0, name, TableKind.VIEW, (ColumnCatalog("a", 0, BIGINT),), (SortKey(0),), (0,), (), (),
                        plan=json.dumps(record) if plan is None else plan)


@pytest.fixture
def store():
    return MemoryMetaStore()


@pytest.fixture
def catalog(store):
    return CatalogManager(store, allows_functions=True)


def created(catalog, *args, **options):
    function, operations = catalog.plan_create_function(draft(*args), **options)
    catalog.apply(operations)
    return function


def test_a_function_is_there_with_the_transaction_and_has_versions(store, catalog):
    first = created(catalog)
    assert (first.id, first.function.version, catalog.version) == (1, 1, 1)
    with pytest.raises(Duplicate, match="there is already a function 'f': CREATE OR REPLACE"):
        catalog.plan_create_function(draft())
    second = created(catalog, "f", "def f(a): return a  # 2", replaces=True)
    assert (second.id, second.function.version, catalog.version) == (1, 2, 2)
    other = CatalogManager(store, allows_functions=True)
    assert dict(other.snapshot.functions) == {1: second} == dict(catalog.snapshot.functions)
    assert other.snapshot.functions_within(0) == (second,)
    with pytest.raises(CatalogError, match="'f' is a function, and is replaced by another one only"):
        catalog.plan_create_function(FunctionCatalog(replace(draft().function, kind=FunctionKind.TABLE)), replaces=True)
    assert [each.name for each in (created(catalog, "e"), *catalog.snapshot.functions_within(0))] == ["e", "e", "f"]


def test_two_changes_of_one_version_exclude_each_other(store, catalog):
    other = CatalogManager(store, allows_functions=True)
    _, operations = catalog.plan_create_function(draft())
    created(other, "g")
    with pytest.raises(PreconditionFailed):
        catalog.apply(operations)


def test_a_function_is_dropped_when_nothing_calls_it(catalog):
    f, g = created(catalog, "f"), created(catalog, "g")
    created(catalog, "f", "def f(a): return a  # 2", replaces=True)
    catalog.create(view("v", f))  # calls the first version
    catalog.create(view("both", g, f))
    catalog.create(view("broken", plan="{"))
    with pytest.raises(DependencyError, match="function 'f' is called by both, v; DROP … CASCADE") as caught:
        catalog.plan_drop_function(f.id)
    assert caught.value.dependents == ("both", "v")
    catalog.drop("both")
    plan = catalog.plan_drop_function(f.id, cascade=True)
    catalog.apply(plan.operations)
    assert [table.name for table in plan.dropped] == ["v"]
    catalog.apply(catalog.plan_drop_function(g.id).operations)
    assert not catalog.snapshot.functions and [each.name for each in catalog.list()] == ["broken"]
    with pytest.raises(NotFound):
        catalog.plan_drop_function(g.id)
    with pytest.raises(NotFound, match="function 'f' was dropped meanwhile"):
        catalog.create(view("late", f))


def test_a_view_and_the_drop_of_its_function_exclude_each_other(store, catalog):
    function = created(catalog)
    _, operations = catalog.plan_create(view("v", function))
    other = CatalogManager(store, allows_functions=True)
    other.apply(other.plan_drop_function(function.id).operations)
    with pytest.raises(PreconditionFailed):
        catalog.apply(operations)


def test_what_is_not_allowed_is_neither_created_nor_found(store, catalog):
    function = created(catalog)
    catalog.create(view("v", function))
    guarded = CatalogManager(store)
    with pytest.raises(FunctionsNotAllowed, match="function 'g' is Python code that the store holds"):
        guarded.plan_create_function(draft("g"))
    with pytest.raises(FunctionsNotAllowed, match="view 'v' calls function 'f'") as caught:
        guarded.check_functions(guarded.list())
    assert caught.value.name == "v" and isinstance(caught.value, PermissionError)
    guarded.apply(guarded.plan_drop_function(function.id, cascade=True).operations)
    guarded.check_functions(guarded.list())


def test_a_record_of_a_newer_release_is_refused(store, catalog):
    function = created(catalog)
    record = function.to_json()
    assert FunctionCatalog.from_json(json.loads(json.dumps(record))) == function
    assert json.loads(store.get(function_key(function.id))) == record
    with pytest.raises(FormatTooNew):
        FunctionCatalog.from_json(record | {"version": 2})
    assert functions_of(view("v", function)) == {function.id: "f"}
    assert functions_of(view("v", plan="[" * 100_000)) == functions_of(view("v", plan="")) == {}
