"""Types, schemas, orders and intervals."""

import pickle

import pyarrow as pa
import pytest

from relational.chunk import Column
from relational.errors import BindError
from relational.types import DataType, Field, Interval, OrderType, Schema, TypeKind
from tests.relational.random_rows import COMPOSED

PLAIN = [kind for kind in TypeKind if kind not in (TypeKind.STRUCT, TypeKind.LIST)]


@pytest.mark.parametrize("kind", PLAIN)
def test_every_type_survives_the_trip_through_arrow_and_through_text(kind):
    data_type = DataType(kind)
    assert DataType.from_arrow(data_type.arrow) == data_type
    assert DataType.parse(str(data_type)) == data_type
    assert getattr(DataType, kind.name) == data_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numeric", DataType.numeric(38, 10)),
        ("NUMERIC(10,2)", DataType.numeric(10, 2)),
        ("decimal( 7 )", DataType.numeric(7, 0)),
        ("double  precision", DataType.DOUBLE),
        ("timestamp with time zone", DataType.TIMESTAMPTZ),
        ("Text", DataType.VARCHAR),
        ("int[]", DataType.list_of(DataType.INT)),
        (
            'struct<A numeric(4, 1)[], "odd ""name" jsonb>[]',
            DataType.list_of(
                DataType.struct(
                    [Field("a", DataType.list_of(DataType.numeric(4, 1))), Field('odd "name', DataType.JSONB)]
                )
            ),
        ),
    ],
)
def test_sql_spellings_are_understood(text, expected):
    assert DataType.parse(text) == expected


NO_TYPES = [
    "struct<>",
    "struct<a>",
    "struct<a int",
    "int[3]",
    "[]",
    "struct<a int, a int>",
    "struct",
    "",
    "blob",
    "varchar(10)",
    "numeric(39)",
    "numeric(3,4)",
    "numeric(0,0)",
    "int(",
]


@pytest.mark.parametrize("text", NO_TYPES)
def test_a_spelling_that_names_no_type_is_a_bind_error(text):
    with pytest.raises(BindError):
        DataType.parse(text)


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.large_utf8(), DataType.VARCHAR),
        (pa.string_view(), DataType.VARCHAR),
        (pa.dictionary(pa.int8(), pa.utf8()), DataType.VARCHAR),
        (pa.timestamp("ns"), DataType.TIMESTAMP),
        (pa.timestamp("s", "Europe/Berlin"), DataType.TIMESTAMPTZ),
        (pa.uint32(), DataType.BIGINT),
        (pa.uint64(), DataType.numeric(20, 0)),
        (pa.time32("ms"), DataType.TIME),
        (pa.binary(8), DataType.BYTEA),
        (pa.binary_view(), DataType.BYTEA),
        (pa.json_(), DataType.JSONB),
        (pa.uuid(), DataType.VARCHAR),
        (pa.duration("ns"), DataType.INTERVAL),
        (pa.list_(pa.int64(), 3), DataType.parse("bigint[]")),
        (pa.map_(pa.utf8(), pa.list_view(pa.int8())), DataType.parse("struct<key text, value smallint[]>[]")),
    ],
)
def test_other_arrow_layouts_find_their_sql_type(arrow, expected):
    assert DataType.from_arrow(arrow) == expected


@pytest.mark.parametrize("data_type", [*COMPOSED, DataType.parse('struct<"" int[][], "a b" struct<c jsonb>>')], ids=str)
def test_composed_types_survive_the_trip_through_arrow_and_through_text(data_type):
    assert DataType.from_arrow(data_type.arrow) == data_type
    assert DataType.parse(str(data_type)) == data_type
    assert hash(DataType.parse(str(data_type))) == hash(data_type)
    assert pickle.loads(pickle.dumps(data_type.arrow)) == data_type.arrow


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.null(), "null: cast"),
        (pa.list_(pa.bool8()), "storage"),
        (pa.decimal256(60, 2), "38 digits"),
        (pa.decimal128(10, -2), "scale"),
        (pa.struct([]), "one field"),
        (pa.dense_union([pa.field("a", pa.int8())]), "struct"),
    ],
    ids=str,
)
def test_an_arrow_type_without_a_sql_type_is_named_with_what_to_do(arrow, advice):
    with pytest.raises(BindError, match=advice):
        DataType.from_arrow(arrow)


def test_a_schema_finds_columns_by_name_and_names_what_it_cannot_find():
    schema = Schema.of(id="bigint", region="varchar", amount="numeric(10, 2)")
    assert schema.names == ("id", "region", "amount")
    assert schema.index("region") == 1
    assert schema.project([2, 0]).names == ("amount", "id")
    assert schema.arrow == pa.schema({"id": pa.int64(), "region": pa.utf8(), "amount": pa.decimal128(10, 2)})
    assert Schema.from_arrow(schema.arrow) == schema
    assert hash(Schema(schema.fields)) == hash(schema)
    with pytest.raises(BindError, match="no column 'missing'"):
        schema.index("missing")
    with pytest.raises(BindError, match="ambiguous"):
        Schema([Field("a", DataType.INT), Field("a", DataType.INT)]).index("a")


def test_null_is_largest_unless_said_otherwise():
    assert not OrderType().nulls_first
    assert OrderType(descending=True).nulls_first
    assert OrderType().nulls_are_largest
    assert OrderType(descending=True).nulls_are_largest
    assert not OrderType(nulls_first=True).nulls_are_largest
    assert not OrderType(descending=True, nulls_first=False).nulls_are_largest


def test_intervals_compare_as_sql_does_and_print_as_people_write():
    assert Interval(months=1) == Interval(days=30) == Interval(microseconds=30 * 86_400_000_000)
    assert hash(Interval(months=1)) == hash(Interval(days=30))
    assert Interval(days=29) < Interval(months=1) < Interval(days=31)
    assert str(Interval(14, -3, 3_661_500_000)) == "1 year 2 mons -3 days +01:01:01.5"
    assert str(Interval()) == "00:00:00"
    assert Interval.from_arrow(Interval(1, 2, 3).to_arrow()) == Interval(1, 2, 3)


def test_an_error_at_a_position_shows_the_line_and_a_caret():
    error = BindError("there is no column 'amont'", text="SELECT id,\n  amont FROM orders", start=13, end=18)
    assert str(error) == "there is no column 'amont'\n2 |   amont FROM orders\n      ^^^^^"
    assert str(BindError("plain")) == "plain"


def example_types():
    """At least one Arrow type of each kind that pyarrow can create."""
    numbers = "null bool_ int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
    others = "utf8 large_utf8 string_view binary large_binary binary_view date32 date64 month_day_nano_interval"
    made = [getattr(pa, name)() for name in [*numbers.split(), *others.split(), "uuid", "bool8", "json_"]]
    member = [pa.field("a", pa.int8(), nullable=False)]
    made += [getattr(pa, f"decimal{bits}")(9, 2) for bits in (32, 64, 128, 256)]
    made += [pa.time32("s"), pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.duration("ms")]
    made += [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2), pa.list_view(pa.int8())]
    made += [pa.large_list_view(pa.int8()), pa.map_(pa.int8(), pa.int8()), pa.struct(member)]
    made += [pa.dictionary(pa.int8(), pa.utf8()), pa.run_end_encoded(pa.int32(), pa.int64())]
    return [*made, pa.binary(3), pa.dense_union(member), pa.sparse_union(member), pa.opaque(pa.int8(), "t", "v")]


NOT_CREATED = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}  # pyarrow cannot create them


def test_every_arrow_type_has_a_sql_type_or_an_error_that_says_what_to_do():
    ids = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    assert {ids[name] for name in ids if name not in NOT_CREATED} <= {arrow.id for arrow in example_types()}
    refused = set()
    for arrow in example_types():
        try:
            data_type = DataType.from_arrow(arrow)
        except BindError as error:
            refused.add(str(arrow))
            assert str(arrow) in str(error) and ": " in str(error), error
            for nested in (pa.list_(arrow), pa.struct([pa.field("f", arrow)])):
                with pytest.raises(BindError, match=": "):
                    DataType.from_arrow(nested)
            with pytest.raises(BindError):
                Column(pa.nulls(0, arrow))
        else:
            assert Column(pa.nulls(2, arrow)).array.type == data_type.arrow
            assert DataType.from_arrow(pa.list_(arrow)) == DataType.list_of(data_type)
    assert len(refused) == 5, refused
