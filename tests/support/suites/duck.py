"""DuckDB as the oracle of SQL results: a connection with our settings, and comparison of rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa

RELATIVE_ERROR = 1e-9


def oracle() -> duckdb.DuckDBPyConnection:
    """A database in memory with our NULL order and time zone."""
    return _with_settings(duckdb.connect(config={"threads": 1}))


def answer(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """DuckDB's answer to a query over tables by name."""
    try:
        with _with_settings(_database_of(os.getpid()).cursor()) as duck:
            for name, table in tables.items():
                duck.register(name, table)
            return duck.sql(query).to_arrow_table()
    except (duckdb.InternalException, duckdb.FatalException):   # they end the database
        _database_of.cache_clear()
        raise


@cache
def _database_of(process: int) -> duckdb.DuckDBPyConnection:
    """A database without tables, which answers register on connections of their own: to open one takes 30 ms."""
    return duckdb.connect(config={"threads": 1})


def _with_settings(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    return connection


def rows_of(table: pa.Table) -> list[tuple]:
    """Rows as tuples; columns may share a name."""
    return (
        list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []
    )


def plain(value: object) -> object:
    """A value in a form that both sides share."""
    if isinstance(value, pa.MonthDayNano):
        return (value.months * 30 + value.days) * 86_400_000_000 + value.nanoseconds // 1000
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if getattr(value, "tzinfo", None) is not None and hasattr(value, "astimezone"):
        return value.timestamp()
    return value


def same(ours: object, theirs: object, absolute_error: float = 1e-9) -> bool:
    """SQL-equal; numbers of different types within an error."""
    ours, theirs = plain(ours), plain(theirs)
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, float | Decimal | int) and isinstance(theirs, float | Decimal | int):
        if isinstance(ours, float) or isinstance(theirs, float):
            x, y = float(ours), float(theirs)
            return (math.isnan(x) and math.isnan(y)) or math.isclose(
                x, y, rel_tol=RELATIVE_ERROR, abs_tol=absolute_error
            )
        return ours == theirs
    return ours == theirs


def assert_same_rows(
    ours: Sequence[tuple], theirs: Sequence[tuple], *, ordered: bool, absolute_error: float = 1e-9
) -> None:
    """Asserts equal rows, in the same order if `ordered`, else after sorting both by their text."""
    assert len(ours) == len(theirs)
    if not ordered:
        ours, theirs = sorted(ours, key=by_text), sorted(theirs, key=by_text)
    for mine, yours in zip(ours, theirs, strict=True):
        pairs = zip(mine, yours, strict=True)
        assert all(same(one, other, absolute_error) for one, other in pairs), (mine, yours)


def by_text(row: Iterable[object]) -> list[str]:
    """A sort key that does not depend on the types of numbers."""
    parts = []
    for value in map(plain, row):
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            parts.append(str(value))
        else:
            parts.append(f"{float(value) + 0.0:.6g}")
    return parts
