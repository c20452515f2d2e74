"""INSERT … VALUES: the columnar reader and the parser return the same rows."""

import pyarrow as pa
import pytest

from relational.batch import run_query
from relational.errors import RelationalError, SourceTextError
from relational.plan.logical import ColumnValues, Values
from relational.sql import bind_sql, dml
from tests.support.drivers.seeds import amount
from tests.support.suites.sql_cases import catalog_of

TABLES = """CREATE TABLE wide (i INT DEFAULT 7, b BIGINT, k SMALLINT, n NUMERIC(12, 3) DEFAULT 1.5, u NUMERIC,
    d DOUBLE, r REAL, t VARCHAR DEFAULT 'none', p BOOLEAN, day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, clock TIME,
    span INTERVAL, x BYTEA, j JSONB, l INT[], s STRUCT<a INT, b VARCHAR>);
CREATE TABLE keyed (id BIGINT PRIMARY KEY, t VARCHAR NOT NULL)"""
WHOLE = ["0", "1", "-1", "+7", "007", "32767", "-32768", "2147483647", "-2147483648", "2147483648", "9" * 18]
DECIMALS = ["1.5", "-0.001", ".5", "5.", "+.25", "-0.0", "12.3456", "1.0", "100.00", "-7.50", "0.1", "99999999.9995"]
DOUBLES = ["1e5", "-2.5E-3", ".5e1", "5.e2", "-0e0", "1e-320", "1.7976931348623157e308"]
TEXTS = ["''", "'a'", "'it''s'", "''''", "'é😀'", "'--'", "'/*'", "'\\'", "'\n'", "';'", "'NULL'", "'x, (y)'", "'\x00'"]
NUMBERS_AS_TEXTS = ["'5'", "' -7 '", "'1.25'", "'1e3'"]
CONSTANTS = ["NULL", "null", "DEFAULT", "TRUE", "false", "Null", "default"]
OTHERS = ["E'a\\nb'", "1 + 1", "'a' || 'b'", "CAST(1 AS INT)", "-(1)", "1e400", "1.5.2", "9" * 19, "9" * 40, "-  5"]
VALUES = {
    "i": WHOLE + DECIMALS[:9] + NUMBERS_AS_TEXTS[:2],
    "b": WHOLE + DECIMALS + NUMBERS_AS_TEXTS[:2],
    "k": ["1", "-5", "2.5", "'3'"],
    "n": WHOLE[:7] + DECIMALS + NUMBERS_AS_TEXTS[:3],
    "u": WHOLE + DECIMALS + NUMBERS_AS_TEXTS,
    "d": WHOLE + DECIMALS + DOUBLES + NUMBERS_AS_TEXTS,
    "r": WHOLE + DECIMALS + DOUBLES[:5] + NUMBERS_AS_TEXTS,
    "t": WHOLE + DECIMALS + DOUBLES + TEXTS + ["TRUE", "false"],
    "p": ["TRUE", "false", "'t'", "'no'"],
    "day": ["'2020-01-01'", "'0001-01-01'"],
    "ts": ["'2020-01-01'", "'2020-01-01 01:02:03.5'"],
    "tz": ["'2020-01-01 00:00:00+02'"],
    "clock": ["'01:02:03'"],
    "span": ["'1 day'", "'2 months 3 hours'"],
    "x": ["'\\x00ff'", "'\\x'"],
    "j": ["'{\"b\": 1, \"a\": 2}'", "'[]'"],
    "l": ["'[1, 2]'", "'[]'"],
    "s": ["'(1, a)'"],
}
BLANKS = ["", " ", "\n", " -- c\n", "/* a /* b */ */", "\t"]


@pytest.fixture(scope="module")
def catalog():
    return catalog_of(TABLES)


def rows_of(statement) -> pa.Table:
    return run_query(statement.query, None, 0)


def outcome(text, catalog):
    """The plan's kind and the rows, as text so that NaN and -0.0 differ; or the error."""
    try:
        (statement,) = bind_sql(text, catalog)
        table = rows_of(statement)
    except (RelationalError, pa.ArrowInvalid) as error:
        return "error", f"{type(error).__name__}: {error}"
    return type(statement.query), (table.schema, repr(table.to_pylist()))


def random_insert(rng) -> str:
    names = rng.sample(list(VALUES), rng.randint(1, 6))
    pools = []
    for name in names:
        pool = VALUES[name]
        pool = [rng.choice(pool)] if rng.random() < 0.2 else pool
        pool = pool + ["NULL"] * rng.choice((0, 1, len(pool)))
        pools.append(pool + (CONSTANTS[:3] if rng.random() < 0.3 else []))
    rows = []
    for _ in range(rng.choice((1, 2, 5, 40))):
        cells = [rng.choice(pool) for pool in pools]
        if rng.random() < 0.01:
            cells[rng.randrange(len(cells))] = rng.choice(OTHERS + TEXTS + CONSTANTS)
        if rng.random() < 0.002:
            cells.append("1")
        rows.append("(" + ",".join(rng.choice(BLANKS) + cell + rng.choice(BLANKS) for cell in cells) + ")")
    listed = ",".join(rng.choice(BLANKS) + row + rng.choice(BLANKS) for row in rows)
    return f"INSERT INTO wide ({', '.join(names)}) VALUES {listed}{rng.choice(('', ';', ' ;'))}"


def test_both_ways_give_the_same_rows_or_the_same_error(rng, catalog, monkeypatch):
    texts = [random_insert(rng) for _ in range(amount(120, 300))]
    columns = [outcome(text, catalog) for text in texts]
    monkeypatch.setattr(dml, "scanned", lambda text: None)
    trees = [outcome(text, catalog) for text in texts]
    for text, one, other in zip(texts, columns, trees, strict=True):
        assert one[1] == other[1], text
        assert other[0] in (Values, "error"), text
    fast = sum(kind is ColumnValues for kind, _ in columns)
    answers = sum(kind != "error" for kind, _ in columns)
    print(f"{fast} of {answers} answers came as columns")
    assert fast > answers / 2 > amount(20, 50)


@pytest.mark.parametrize(
    "text",
    [
        "insert into keyed values (1, 'a'), (2, 'b')",
        'INSERT INTO "keyed" ("id", t) VALUES (1, \'a\')',
        "INSERT INTO public . keyed(t,id)VALUES('a',1)",
        "\n INSERT\nINTO dev.public.keyed\nVALUES -- all\n (1, 'a') ;\n",
    ],
)
def test_literals_make_no_tree(text, catalog):
    (statement,) = bind_sql(text, catalog)
    assert isinstance(statement.query, ColumnValues)


@pytest.mark.parametrize("value", OTHERS)
def test_what_is_no_literal_makes_a_tree(value, catalog):
    assert outcome(f"INSERT INTO wide (t) VALUES ({value})", catalog)[0] in (Values, "error")


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO keyed VALUES (1, 'a'), (2)",
        "INSERT INTO keyed VALUES (1, 'a') (2, 'b')",
        "INSERT INTO keyed VALUES (1, 'a'),",
        "INSERT INTO keyed VALUES (1, 'a', 3)",
        "INSERT INTO keyed VALUES ()",
        "INSERT INTO keyed VALUES",
        "INSERT INTO keyed VALUES (1, 'a",
        "INSERT INTO keyed VALUES (1, 'a') /* open",
        "INSERT INTO keyed (id) VALUES ('x'), (1)",
        "INSERT INTO keyed (id) VALUES (1), (TRUE)",
        "INSERT INTO keyed (id) VALUES (1), (1) RETURNING idd",
    ],
)
def test_an_error_has_its_position(text, catalog):
    with pytest.raises(SourceTextError) as caught:
        list(bind_sql(text, catalog))
    assert caught.value.start is not None


def test_thousands_of_rows_of_expressions_are_bound(catalog):
    rows = ", ".join(f"({number} + 0, 'a')" for number in range(3_000))
    (statement,) = bind_sql(f"INSERT INTO keyed VALUES {rows}", catalog)
    assert len(statement.query.rows) == 3_000


def test_rows_of_defaults_and_left_out_columns(catalog):
    (statement,) = bind_sql("INSERT INTO wide (b, i) VALUES (1, DEFAULT), (2, 3), (NULL, NULL)", catalog)
    assert isinstance(statement.query, ColumnValues)
    table = rows_of(statement)
    assert table["i"].to_pylist() == [7, 3, None] and table["b"].to_pylist() == [1, 2, None]
    assert table["t"].to_pylist() == ["none"] * 3 and table["n"].to_pylist()[0] is not None
