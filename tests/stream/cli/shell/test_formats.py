import csv
import io
import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from stream.cli.shell import formats
from stream.cli.shell.formats import WRITERS, write_csv, write_json, write_markdown, write_ndjson, write_records
from stream.cli.shell.options import ARROW, FORMATS, TABLE
from tests.support.drivers.seeds import run_seed


def written(writer, rows):
    out = io.StringIO()
    writer(rows, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def every_type(shop):
    return shop.sql("""
        SELECT 1::smallint AS a, 1.50::numeric(5, 2) AS b, 'x,"y' AS c, '' AS d, NULL::int AS e, DATE '2020-01-02' AS f,
               TIMESTAMP '2020-01-02 03:04:05' AS g, TIMESTAMPTZ '2020-01-02 03:04:05.5Z' AS h, INTERVAL '1 day' AS i,
               '{"k": 1}'::jsonb AS j, ARRAY[1, 2] AS k, ROW(1, 'x') AS l, 'ab'::bytea AS m, TIME '03:04:05' AS n,
               0.1::float8 AS o, true AS p, 'NaN'::float8 AS q, E'two\\nlines' AS r""").to_arrow()


def test_formats_have_names():
    assert (TABLE, *WRITERS, ARROW) == FORMATS


def test_csv_has_the_texts_of_sql(every_type):
    header, row = csv.reader(io.StringIO(written(write_csv, every_type)))
    assert header == list("abcdefghijklmnopqr")
    assert row == ["1", "1.50", 'x,"y', "", "", "2020-01-02", "2020-01-02 03:04:05", "2020-01-02 03:04:05.5+00",
                   "1 day", '{"k":1}', "{1,2}", "(1,x)", "\\x6162", "03:04:05", "0.1", "true", "NaN", "two\nlines"]


def test_csv_tells_null_from_an_empty_text():
    assert written(write_csv, pa.table({"a": ["", None, "b"], "b": [None, None, " c"]})) == 'a,b\n"",\n,\nb," c"\n'
    assert written(write_csv, pa.table({'a "b"': pa.array([], pa.int64())})) == '"a ""b"""\n'


def test_json_has_the_values_of_to_jsonb(every_type):
    (row,) = json.loads(written(write_json, every_type), parse_float=Decimal)
    assert row == {
        "a": 1, "b": Decimal("1.50"), "c": 'x,"y', "d": "", "e": None, "f": "2020-01-02", "g": "2020-01-02T03:04:05",
        "h": "2020-01-02T03:04:05.5+00:00", "i": "1 day", "j": {"k": 1}, "k": [1, 2], "l": {"f1": 1, "f2": "x"},
        "m": "\\x6162", "n": "03:04:05", "o": Decimal("0.1"), "p": True, "q": "NaN", "r": "two\nlines",
    }  # fmt: skip


def test_json_is_an_array_whatever_the_number_of_rows(monkeypatch):
    monkeypatch.setattr(formats, "BATCH_ROWS", 2)
    for count in range(6):
        rows = pa.table({"n": pa.array(range(count), pa.int64())})
        assert json.loads(written(write_json, rows)) == [{"n": number} for number in range(count)]
        assert [json.loads(line) for line in written(write_ndjson, rows).splitlines()] == rows.to_pylist()


def test_repeated_names_are_told_apart_in_json(shop):
    rows = shop.sql("SELECT 1 AS a, 2 AS a_1, 3 AS a").to_arrow()
    assert json.loads(written(write_ndjson, rows)) == {"a": 1, "a_1": 2, "a_2": 3}


def test_markdown_escapes_what_would_end_a_cell():
    rows = pa.table({"a|b": ["x|y", None, "1\n2"], "n": [1, 2, 3]})
    assert written(write_markdown, rows).splitlines() == [
        r"| a\|b | n |", "| --- | ---: |", r"| x\|y | 1 |", "| NULL | 2 |", "| 1<br>2 | 3 |"]


def test_records_are_lines_of_name_and_value():
    rows = pa.table({"id": [1, 2], "region": ["two\nlines", None]})
    assert written(write_records, rows).splitlines() == [
        "─[ 1 ]───", "id     │ 1", "region │ two", "       │ lines", "─[ 2 ]───", "id     │ 2", "region │ NULL"]


def test_what_csv_and_json_write_is_read_back(monkeypatch):
    monkeypatch.setattr(formats, "BATCH_ROWS", 7)
    seed = run_seed()
    rng = random.Random(seed)
    alphabet = ['"', ",", "\n", "\r", "\\", " ", "a", "é", "\u2028", "'", "\t", "\x1f"]
    texts = ["".join(rng.choice(alphabet) for _ in range(rng.randrange(6))) for _ in range(200)]
    given = [None if rng.random() < 0.2 else text for text in texts]
    numbers = [None if rng.random() < 0.2 else rng.uniform(-1e6, 1e6) for _ in texts]
    rows = pa.table({"s": pa.array(given, pa.string()), "f": pa.array(numbers, pa.float64())})
    read = list(csv.reader(io.StringIO(written(write_csv, rows), newline="")))[1:]
    assert [(row[0], float(row[1]) if row[1] else None) for row in read] == [
        (text or "", number) for text, number in zip(given, numbers, strict=True)], seed
    assert json.loads(written(write_json, rows)) == rows.to_pylist(), seed
