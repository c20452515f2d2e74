"""Tables as text: exact pictures, and what holds for all tables and widths."""

import random
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.cells import cell_len

from relational.display.cells import cut, visible, width_of
from relational.display.text import counted_rows, render
from relational.types.arrow_types import JSONB_ARROW
from relational.types.interval import Interval
from tests.support.drivers.seeds import run_seed

FLIGHTS = pa.table({
    "id": pa.array([1, 22, None], pa.int64()),
    "carrier": ["UA", None, "NULL"],
    "price": pa.array([Decimal("1.50"), None, Decimal("1000.25")], pa.decimal128(10, 2)),
    "at": pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 2, 3, 4, 5), None], pa.timestamp("us")),
    "note": ["n" * 100, "short", ""],
})


def picture(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_in_a_wide_terminal_every_value_is_whole():
    assert render(FLIGHTS.drop_columns("note"), width=120) == picture("""
        ┌────────┬─────────┬────────────────┬────────────────────────────┐
        │     id │ carrier │          price │ at                         │
        │ BIGINT │ VARCHAR │ NUMERIC(10, 2) │ TIMESTAMP                  │
        ├────────┼─────────┼────────────────┼────────────────────────────┤
        │      1 │ UA      │           1.50 │ 2024-01-01 00:00:00        │
        │     22 │ NULL    │           NULL │ 2024-01-01 02:03:04.000005 │
        │   NULL │ 'NULL'  │        1000.25 │ NULL                       │
        └────────┴─────────┴────────────────┴────────────────────────────┘
        3 rows
    """)


def test_in_80_columns_long_values_are_cut_and_numbers_are_not():
    assert render(FLIGHTS, width=80) == picture("""
        ┌────────┬─────────┬─────────────┬────────────────────────────┬────────────────┐
        │     id │ carrier │       price │ at                         │ note           │
        │ BIGINT │ VARCHAR │ NUMERIC(10… │ TIMESTAMP                  │ VARCHAR        │
        ├────────┼─────────┼─────────────┼────────────────────────────┼────────────────┤
        │      1 │ UA      │        1.50 │ 2024-01-01 00:00:00        │ nnnnnnnnnnnnn… │
        │     22 │ NULL    │        NULL │ 2024-01-01 02:03:04.000005 │ short          │
        │   NULL │ 'NULL'  │     1000.25 │ NULL                       │                │
        └────────┴─────────┴─────────────┴────────────────────────────┴────────────────┘
        3 rows
    """)


def test_columns_that_do_not_fit_are_an_ellipsis():
    assert render(FLIGHTS, width=40, max_rows=1) == picture("""
        ┌────────┬─────────┬───────────────┬───┐
        │     id │ carrier │         price │ … │
        │ BIGINT │ VARCHAR │ NUMERIC(10, … │ … │
        ├────────┼─────────┼───────────────┼───┤
        │      1 │ UA      │          1.50 │ … │
        └────────┴─────────┴───────────────┴───┘
        3 rows, first 1 shown, 3 of 5 columns
    """)
    assert render(FLIGHTS.select(["note", "id"]), width=1, max_rows=1) == picture("""
        ┌──────┬───┐
        │ note │ … │
        │ VAR… │ … │
        ├──────┼───┤
        │ nnn… │ … │
        └──────┴───┘
        3 rows, first 1 shown, 1 of 2 columns
    """)


def test_a_long_header_does_not_push_other_columns_out():
    table = pa.table({"minutes_of_departure_delay": [1, -2], "b": ["x", "y"], "c": [True, None]})
    assert render(table, width=40) == picture("""
        ┌──────────────────┬─────────┬─────────┐
        │ minutes_of_depa… │ b       │ c       │
        │           BIGINT │ VARCHAR │ BOOLEAN │
        ├──────────────────┼─────────┼─────────┤
        │                1 │ x       │ true    │
        │               -2 │ y       │ NULL    │
        └──────────────────┴─────────┴─────────┘
        2 rows
    """)


def test_wide_characters_and_marks_that_combine_keep_the_grid():
    table = pa.table({"名前": ["日本語テキスト", "e\u0301te\u0301", "한국어", "👨‍👩‍👧", "🇩🇪", "❤️", "👍🏽", "हिन्दी"]})
    assert render(table, width=17) == picture("""
        ┌───────────────┐
        │ 名前          │
        │ VARCHAR       │
        ├───────────────┤
        │ 日本語テキス… │
        │ e\u0301te\u0301           │
        │ 한국어        │
        │ 👨‍👩‍👧            │
        │ 🇩🇪            │
        │ ❤️            │
        │ 👍🏽            │
        │ हिन्दी         │
        └───────────────┘
        8 rows
    """)


def test_what_a_terminal_would_execute_is_shown():
    texts = ["a\nb\r\tc", "\x1b[31mred\x07", "\u202eevil\u2066", "\u200bnothing", "\x00", "back\\slash", "\xa0"]
    assert render(pa.table({"control": texts}), max_rows=20) == picture(r"""
        ┌──────────────────┐
        │ control          │
        │ VARCHAR          │
        ├──────────────────┤
        │ a\nb\r\tc        │
        │ \x1b[31mred\x07  │
        │ \u202eevil\u2066 │
        │ \u200bnothing    │
        │ \x00             │
        │ back\slash       │
        │ NBSP                │
        └──────────────────┘
        7 rows
    """).replace("NBSP", "\xa0")


def test_every_type_is_shown_as_sql_casts_it_to_text():
    table = pa.table({
        "l": [[1, None, 2]], "s": [{"a": 1, "b": "x"}], "b": [b"\x00\xff"], "j": pa.array(['{"k":[1]}'], JSONB_ARROW),
        "i": pa.array([Interval(1, 2, 3_000_000).to_arrow()], pa.month_day_nano_interval()),
        "d": [date(2024, 2, 29)], "z": pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
        "f": [float("nan")], "u": pa.array([2**64 - 1], pa.uint64()), "n": pa.nulls(1),
        "c": pa.array(["dict"]).dictionary_encode(),
    })
    values = [line.split("│")[1:-1] for line in render(table, width=300).splitlines()[1:5]]
    kinds, shown = ([cell.strip() for cell in values[at]] for at in (1, 3))
    assert kinds == ["BIGINT[]", "STRUCT<a BIGINT…", "BYTEA", "JSONB", "INTERVAL", "DATE", "TIMESTAMPTZ", "DOUBLE",
                     "NUMERIC(20, 0)", "null", "VARCHAR"]
    assert shown == ["{1,NULL,2}", "(1,x)", r"\x00ff", '{"k":[1]}', "1 mon 2 days 00:00:03", "2024-02-29",
                     "2024-01-01 00:00:00+00", "NaN", "18446744073709551615", "NULL", "dict"]


def test_without_rows_and_without_columns():
    assert render(FLIGHTS.select(["id", "carrier"]).slice(0, 0)) == picture("""
        ┌────────┬─────────┐
        │     id │ carrier │
        │ BIGINT │ VARCHAR │
        ├────────┼─────────┤
        └────────┴─────────┘
        0 rows
    """)
    assert render(pa.table({})) == "0 rows"


@pytest.mark.parametrize(("count", "more", "text"), [
    (0, False, "0 rows"), (1, False, "1 row"), (1, True, "1+ rows"), (10_000, False, "10,000 rows"),
    (10_000, True, "10,000+ rows"),
])  # fmt: skip
def test_the_number_of_rows_is_said(count: int, more: bool, text: str):
    assert counted_rows(count, more=more) == text


def test_more_rows_and_columns_than_the_table_has():
    text = render(pa.table({"a": range(10_000)}), max_rows=2, more_rows=True, all_columns=3)
    assert text.splitlines()[3:] == ["├────────┼───┤", "│      0 │ … │", "│      1 │ … │", "└────────┴───┘",
                                     "10,000+ rows, first 2 shown, 1 of 3 columns"]
    assert render(pa.table({"a": [1]}), more_rows=True).endswith("\n1+ rows, first 1 shown")


def test_texts_that_look_like_null_are_quoted():
    column = ["NULL", "'NULL'", "null", None]
    lines = render(pa.table({"a": column})).splitlines()[4:-2]
    assert [line.strip("│ ") for line in lines] == ["'NULL'", "''NULL''", "null", "NULL"]


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 80])
def test_a_text_is_cut_within_its_width(width: int):
    for text in ("日本語", "e\u0301" * 5, "\u0301\u0301x" * 3, "👨‍👩‍👧👨‍👩‍👧", "plain text"):
        shown = cut(text, max(width, 1))
        assert width_of(shown) <= max(width, 1)
        assert shown == text or shown.endswith("…")


def test_a_huge_value_is_not_read_as_a_whole():
    table = pa.table({"a": ["x" * 50_000_000, "\u0301" * 1_000_000], "b": [b"y" * 50_000_000, b""]})
    assert all(width_of(line) <= 80 for line in render(table).splitlines())
    assert "…" in render(table).splitlines()[5]


CHARACTERS = "ab 1\n\t\x1b\\'日本한Ａé\u0301\u0300ंß…│\u202e\u200bЖ"
TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.utf8(), pa.binary(), pa.list_(pa.utf8()))


def random_value(rng: random.Random, arrow: pa.DataType) -> object:
    text = "".join(rng.choices(CHARACTERS, k=rng.choice([0, 1, 3, 12, 100])))
    if rng.random() < 0.2:
        return None
    return {
        "int64": rng.choice([0, -1, 10**rng.randrange(18)]), "double": rng.uniform(-1, 1) * 10.0 ** rng.randrange(300),
        "bool": rng.random() < 0.5, "string": text, "binary": text.encode(),
    }.get(str(arrow), [text, None])  # fmt: skip


def test_no_line_is_wider_than_the_terminal_and_all_are_as_wide_as_the_first():
    seed = run_seed()
    rng = random.Random(seed)
    for _ in range(300):
        columns = [rng.choice(TYPES) for _ in range(rng.randrange(1, 9))]
        names = ["".join(rng.choices(CHARACTERS, k=rng.randrange(1, 30))) for _ in columns]
        rows = rng.randrange(6)
        arrays = [pa.array([random_value(rng, each) for _ in range(rows)], each) for each in columns]
        width = rng.randrange(1, 200)
        text = render(pa.Table.from_arrays(arrays, names), width=width, max_rows=4)
        *grid, _ = text.splitlines()
        assert len(grid) == min(rows, 4) + 5, f"seed {seed}\n{text}"
        assert {cell_len(line) for line in grid} == {cell_len(grid[0])}, f"seed {seed}\n{text}"
        assert cell_len(grid[0]) <= max(width, 12), f"seed {seed}, width {width}\n{text}"


def test_what_is_visible_stays_as_it_is():
    seed = run_seed()
    rng = random.Random(seed)
    for _ in range(1_000):
        text = "".join(rng.choices(CHARACTERS, k=8))
        shown = visible(text)
        assert visible(shown) == shown and "\n" not in shown and "\x1b" not in shown, f"seed {seed}: {text!r}"
