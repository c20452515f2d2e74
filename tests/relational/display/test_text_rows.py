"""Lines of CSV and JSON objects, read again by Python's csv and json."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import random

import pyarrow as pa
import pytest

from relational.display.text_rows import csv_lines, json_objects, lines_as_bytes
from tests.support.drivers.seeds import run_seed

CHARACTERS = "ab ,;|'\"\n\r\\.é€1-"


def random_batch(rng: random.Random, rows: int) -> pa.RecordBatch:
    def column(make):
        return [None if rng.random() < 0.2 else make() for _ in range(rows)]

    return pa.record_batch({
        "text": pa.array(column(lambda: "".join(rng.choices(CHARACTERS, k=rng.randrange(6)))), pa.string()),
        "whole": pa.array(column(lambda: rng.randrange(-99, 99)), pa.int64()),
        "exact": pa.array(column(lambda: decimal.Decimal(rng.randrange(-999, 999)).scaleb(-2)), pa.decimal128(9, 2)),
        "float": pa.array(column(lambda: rng.choice([rng.uniform(-9, 9), 1e300, -1e-7])), pa.float64()),
        "flag": pa.array(column(lambda: rng.random() < 0.5), pa.bool_()),
        "day": pa.array(column(lambda: datetime.date(2024, 1, rng.randrange(1, 30))), pa.date32()),
    })


@pytest.mark.parametrize(("delimiter", "quote", "null"), [
    (",", '"', ""), (";", "'", "NULL"), ("1", '"', ""), ("|", "a", ""), (".", '"', "-1"), ("-", "e", ""),
])  # fmt: skip
def test_csv_lines_are_read_again(delimiter: str, quote: str, null: str) -> None:
    batch = random_batch(random.Random(run_seed()), 500)
    text = bytes(lines_as_bytes(csv_lines(batch.columns, delimiter, quote, null))).decode()
    found = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote, strict=True))
    for row, cells in zip(batch.to_pylist(), found, strict=True):
        for value, cell in zip(row.values(), cells, strict=True):
            if value is None:
                assert cell == null
            elif isinstance(value, bool):
                assert cell == str(value).lower()
            elif isinstance(value, float):
                assert float(cell) == value
            else:
                assert cell == str(value)


def test_a_text_that_looks_like_null_is_quoted() -> None:
    assert csv_lines([pa.array(["", None, "NA"])]).to_pylist() == ['""', "", "NA"]
    assert csv_lines([pa.array(["", None, "NA"])], null="NA").to_pylist() == ['""', "NA", '"NA"']
    assert csv_lines([pa.array([-1, None])], null="-1").to_pylist() == ['"-1"', "-1"]


def test_json_objects_are_read_again() -> None:
    batch = random_batch(random.Random(run_seed()), 300)
    lines = bytes(lines_as_bytes(json_objects(batch))).decode().splitlines()
    for row, line in zip(batch.to_pylist(), lines, strict=True):
        expected = row | {"day": None if row["day"] is None else row["day"].isoformat()}
        expected["exact"] = None if row["exact"] is None else float(row["exact"])
        assert json.loads(line) == expected


def test_slices_have_the_bytes_of_their_lines() -> None:
    lines = pa.array(["a", "", "ccc", "é"])
    assert bytes(lines_as_bytes(lines)) == "a\n\nccc\né\n".encode()
    assert bytes(lines_as_bytes(lines.slice(1, 2))) == b"\nccc\n"
    assert bytes(lines_as_bytes(lines.slice(4))) == b""
