"""Casts of text, ns a row against Arrow's own cast of the same texts (ratio below 1: faster).

    pytest bench/bench_casts.py --benchmark-only -s
"""

from __future__ import annotations

import random
import timeit

import pyarrow as pa
import pytest

from relational.chunk import DataChunk
from relational.expr import evaluate
from relational.expr.expression import Cast, InputRef
from relational.types import DataType

ROWS = 4096


def whole(rng: random.Random) -> str:
    return str(rng.randrange(-(10**9), 10**9))


def cents(rng: random.Random) -> str:
    return f"{rng.randrange(-(10**9), 10**9)}.{rng.randrange(100):02}"


def shortest(rng: random.Random) -> str:
    return repr(rng.uniform(-1e6, 1e6))


CASES = {
    "INT": (whole, "int"),
    "BIGINT": (whole, "bigint"),
    "NUMERIC(12, 2)": (cents, "numeric(12, 2)"),
    "NUMERIC(38, 10)": (cents, "numeric(38, 10)"),
    "REAL": (shortest, "real"),
    "DOUBLE, 17 digits": (shortest, "double"),
    "DOUBLE, 2 decimals": (cents, "double"),
}


@pytest.mark.parametrize("has_bad_row", [False, True], ids=["clean", "one bad row"])
@pytest.mark.parametrize(("text_of", "spelled"), CASES.values(), ids=CASES)
def test_cast_of_text(benchmark, text_of, spelled, has_bad_row):
    rng = random.Random(1)
    texts = pa.array([text_of(rng) for _ in range(ROWS)])
    target = DataType.parse(spelled)
    arrow = min(timeit.repeat(lambda: texts.cast(target.arrow), number=20, repeat=30)) / 20
    given = pa.concat_arrays([texts.slice(1), pa.array(["x"])]) if has_bad_row else texts
    expression, chunk = Cast(InputRef(0, DataType.VARCHAR), target), DataChunk([given])
    benchmark(lambda: evaluate(expression, chunk))
    best = benchmark.stats.stats.min
    benchmark.extra_info |= {"ns_per_row": best / ROWS * 1e9, "ratio_to_arrow": best / arrow}
    print(f"\n{spelled}: {best / ROWS * 1e9:.1f} ns a row, {best / arrow:.2f} of Arrow's {arrow / ROWS * 1e9:.1f}")
