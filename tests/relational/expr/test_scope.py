"""Names of columns and relations in a scope of several from items and in nested scopes."""

import pytest

from relational.errors import BindError
from relational.expr.bind import Scope
from relational.expr.expression import InputRef, OuterRef
from relational.expr.scope import FromItem
from relational.expr.unbound import Name
from relational.types import DataType, Schema

ORDERS = Schema.of(id="bigint", region="varchar", _row_id="bigint")
ITEMS = Schema.of(id="bigint", price="int")


def joined(**options):
    """orders AS o, shop.items"""
    orders = FromItem(ORDERS, frozenset((2,)), ("o",))
    return Scope.of_items((orders, FromItem(ITEMS, path=("dev", "shop", "items"), first=3)), **options)


@pytest.mark.parametrize(
    ("name", "qualifier", "index"),
    [
        ("region", (), 1),
        ("price", (), 4),
        ("id", ("o",), 0),
        ("id", ("items",), 3),
        ("id", ("shop", "items"), 3),
        ("price", ("dev", "shop", "items"), 4),
        ("_row_id", (), 2),
    ],
)
def test_a_name_is_a_column_of_the_row(name, qualifier, index):
    found = joined().resolve(Name(name, qualifier))
    assert found == InputRef(index, (*ORDERS.types, *ITEMS.types)[index])


@pytest.mark.parametrize(
    ("name", "qualifier", "message"),
    [
        ("id", (), "column 'id' is ambiguous: 'o' and 'dev.shop.items' have one"),
        ("prize", (), "there is no column 'prize'; did you mean 'price'?"),
        ("price", ("o",), "there is no column 'price'"),
        ("id", ("orders",), "there is no relation 'orders'"),
        ("id", ("item",), "there is no relation 'item'; did you mean 'items'?"),
        ("id", ("public", "items"), "there is no relation 'public.items'"),
        ("id", ("dev", "o"), "there is no relation 'dev.o'"),
    ],
)
def test_a_name_that_is_no_column_is_refused(name, qualifier, message):
    with pytest.raises(BindError) as caught:
        joined().resolve(Name(name, qualifier, (3, 5)))
    assert (str(caught.value), caught.value.start, caught.value.end) == (message, 3, 5)


def test_a_relation_that_is_there_twice_is_ambiguous():
    scope = Scope.of_items((FromItem(ORDERS, path=("x",)), FromItem(ITEMS, path=("x",), first=3)))
    with pytest.raises(BindError, match="relation 'x' is ambiguous"):
        scope.resolve(Name("price", ("x",)))


def test_a_star_is_all_visible_columns_or_those_of_one_relation():
    assert [(each.index, each.name) for each in joined().star((), None)] == [
        (0, "id"), (1, "region"), (3, "id"), (4, "price"),
    ]
    assert [each.index for each in joined().star(("shop", "items"), None)] == [3, 4]
    with pytest.raises(BindError, match="there is no relation 'y'"):
        joined().star(("y",), None)


def test_a_visible_column_goes_before_a_hidden_one_of_its_name():
    item = FromItem(Schema.of(_row_id="varchar", x="int"), path=("t",))
    other = FromItem(Schema((*item.schema, *ORDERS)), frozenset((4,)), ("t",))
    assert Scope.of_items((other,)).resolve(Name("_row_id")) == InputRef(0, DataType.VARCHAR)


def test_a_name_is_of_the_nearest_query_that_has_it():
    middle = Scope.of_items((FromItem(Schema.of(x="int"), path=("m",)),), outer=joined())
    inner = Scope.of_items((FromItem(ITEMS, path=("i",)),), middle)
    assert [joined().depth, middle.depth, inner.depth] == [0, 1, 2]
    assert inner.resolve(Name("id")) == InputRef(0, DataType.BIGINT), "the inner scope shadows the outer one"
    assert inner.resolve(Name("x")) == OuterRef(0, DataType.INT, 1)
    assert inner.resolve(Name("region", ("o",))) == inner.resolve(Name("region")) == OuterRef(1, DataType.VARCHAR, 0)
    with pytest.raises(BindError, match="there is no column 'nothing'"):
        inner.resolve(Name("nothing"))
