"""Rows that show themselves: what a query or a statement gives, lazily as a `Relation` or read as a `ResultSet`.

`print(result)` and `repr` are a table of the first rows, in a notebook it is HTML; both read a limited number of rows,
and show an error in place of rows instead of raising it. Any library that takes Arrow streams takes a result:
`polars.DataFrame(result)`, `pyarrow.table(result)`, `duckdb.sql("FROM result")`.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hummock.base.extras import require
from hummock.errors import no_attribute
from relational.errors import InvalidValue

if TYPE_CHECKING:
    import pandas
    import polars

DISPLAY_ROWS = "HUMMOCK_DISPLAY_ROWS"
"""Environment variable: how many rows `repr` and notebooks show."""
SHOWN_ROWS = 10
"""Where it is not set."""
COUNTED_ROWS = 10_000
"""Rows that are read in order to say how many there are; beyond it is `10,000+ rows`."""
HTML_COLUMNS = 40
INTERVAL_PARTS = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
DAY_MICROSECONDS = 86_400_000_000
MOST_DURATION_DAYS = 106_000_000
"""Of which a Duration has the microseconds, with those of an INTERVAL besides."""
FETCH_ROWS = 1_024
"""Rows that become Python objects at once."""


ELSEWHERE = {
    "arrow": "to_arrow()", "fetch_arrow_table": "to_arrow()", "fetch_df": "df()", "fetchdf": "df()", "to_df": "df()",
    "collect": "to_arrow(), df(), pl() or rows()", "to_dict": "rows()", "to_dicts": "rows()", "to_pylist": "rows()",
    "shape": "len(result) and its columns", "dtypes": "schema", "types": "schema", "describe": "df().describe()",
    "where": "filter(col(name) > 1)", "sort": "order_by(name)", "sort_values": "order_by(name)",
    "groupby": "group_by(name).agg(name=functions.sum(name))", "aggregate": "agg(name=functions.sum(name))",
    "count": "len(result), or agg(rows=functions.count())", "project": "select(name)", "with_column": "with_columns",
    "to_csv": "COPY … TO 'file.csv'", "write_csv": "COPY … TO 'file.csv'",
    "to_parquet": "COPY … TO 'file.parquet'", "write_parquet": "COPY … TO 'file.parquet'",
}
"""What a result has in place of attributes of DuckDB, pandas, Polars and Spark."""


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows and columns of a result. `more_rows`: it has more than these; `all_columns`: how many it has."""

    table: pa.Table
    more_rows: bool
    all_columns: int


class Row(tuple[Any, ...]):
    """A tuple whose values are also attributes by the names of their columns, of columns with one name the last one. So
    `pandas.DataFrame(result)` has the names too."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _row_of, (self._fields, tuple(self))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def names_of(row: object) -> tuple[str, ...] | None:
    """The names of the values of a tuple that has some: a Row, a namedtuple, a Row of Spark; None for any other object.
    """
    if not isinstance(row, tuple):
        return None
    names = getattr(row, "_fields", None) or getattr(row, "__fields__", None)
    return tuple(names) if names else None


@lru_cache(256)
def _row_class(names: tuple[str, ...]) -> type[Row]:
    values = {name: property(itemgetter(at)) for at, name in enumerate(names) if not name.startswith("__")}
    return type("Row", (Row,), {**values, "__slots__": (), "_fields": names})


def _row_of(names: tuple[str, ...], values: Iterable[Any]) -> Row:
    return _row_class(names)(values)


class Result(ABC):
    """Rows with names and types.

        found = db.sql("SELECT region, amount FROM orders ORDER BY id LIMIT 2")
        found.fetchone()                        # ('EUROPE', 30)
        [region for region, _ in found]         # ['EUROPE', 'ASIA']
        found.df()["amount"].sum()              # 35
        found.show()

    Errors are those of the query, wherever rows are read."""

    _fetched: Iterator[Row] | None = None
    """What `fetchone` and `fetchmany` have not yet taken of the rows that the first of them has read."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """All rows."""

    @abstractmethod
    def first_rows(self, rows: int, columns: int) -> FirstRows:
        """At most `rows` rows and `columns` columns, for a look at them."""

    @abstractmethod
    def head(self, rows: int = 5) -> Result:
        """The first rows."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise no_attribute(self, name, ELSEWHERE)

    # -- as Python objects -----------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """All rows as dicts by column name. Of columns with one name the last one counts: `fetchall` has all."""
        return self.to_arrow().to_pylist()

    def __iter__(self) -> Iterator[Row]:
        """The rows as tuples, whose values are attributes too. They are read at once, by one query.

            for row in db.sql("SELECT region, revenue FROM sales"):
                print(row.region, row[1])
        """
        return _tuples(self.to_arrow())

    def fetchall(self) -> list[Row]:
        """All rows as tuples; those that are left, after `fetchone` or `fetchmany`."""
        left, found = self._fetched, []
        for row in self if left is None else left:
            found.append(row)
        self._remember(None)
        return found

    def fetchone(self) -> Row | None:
        """The next row, None after the last one. The first call reads all rows at one epoch; one after None reads
        them anew."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int = 1) -> list[Row]:
        """The next rows, at most `size`, [] after the last one; as `fetchone`."""
        left = iter(self) if self._fetched is None else self._fetched
        found = list(islice(left, size))
        self._remember(left if found or not size else None)
        return found

    def _remember(self, left: Iterator[Row] | None) -> None:
        self.__dict__["_fetched"] = left

    # -- for other libraries ---------------------------------------------------------------------------

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas frame. Raises `ExtraMissing` without pandas."""
        require("pandas", "to_pandas()")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame: JSONB as String, INTERVAL as Duration. Raises `ExtraMissing` without polars;
        InvalidValue for an INTERVAL with months, which Polars has not."""
        require("polars", "to_polars()")
        import polars

        frame = polars.from_arrow(_for_polars(self.to_arrow()))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def df(self) -> pandas.DataFrame:
        """Short for `to_pandas`."""
        return self.to_pandas()

    def pl(self) -> polars.DataFrame:
        """Short for `to_polars`."""
        return self.to_polars()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All rows as a stream of the Arrow C data interface, in a PyCapsule. Polars panics at an INTERVAL: there is
        `to_polars`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    # -- for people ------------------------------------------------------------------------------------

    def show(self, limit: int = 20, *, width: int | None = None) -> None:
        """Prints the first rows, at most `limit`, in lines of at most `width` columns, by default those of the
        terminal."""
        print(self._text(limit, width))

    def __repr__(self) -> str:
        try:
            return self._text(display_rows(), None)
        except Exception as error:
            return self._failure(error)

    def _repr_html_(self) -> str:
        from relational.display.html import html_of, html_of_text

        try:
            rows = display_rows()
            first = self.first_rows(max(rows, COUNTED_ROWS), HTML_COLUMNS)
            return html_of(first.table, max_rows=rows, more_rows=first.more_rows, all_columns=first.all_columns)
        except Exception as error:
            return html_of_text(self._failure(error))

    def _text(self, limit: int, width: int | None) -> str:
        from relational.display.text import most_columns, render

        width = shutil.get_terminal_size().columns if width is None else width
        first = self.first_rows(max(limit, COUNTED_ROWS), most_columns(width))
        return render(first.table, width=width, max_rows=limit, more_rows=first.more_rows,
                      all_columns=first.all_columns)

    def _failure(self, error: Exception) -> str:
        from relational.display.cells import visible_lines

        return visible_lines(f"{self._title}\n{type(error).__name__}: {error}")

    @property
    def _title(self) -> str:
        """What stands above an error in place of rows."""
        return type(self).__name__


class ResultSet(Result):
    """Rows that a statement has given. What else a `pyarrow.Table` has, this has too: `num_rows`, `column_names`,
    `schema`, `column(name)`, `result["name"]`, `to_pylist()` and so on. `text_of`: the column that is a text of several
    lines, which is shown as such instead of a table."""

    def __init__(self, table: pa.Table, text_of: str | None = None) -> None:
        self._table, self._text_of = table, text_of

    def to_arrow(self) -> pa.Table:
        return self._table

    def first_rows(self, rows: int, columns: int) -> FirstRows:
        return FirstRows(self._table, False, self._table.num_columns)

    def head(self, rows: int = 5) -> ResultSet:
        return ResultSet(self._table.slice(0, rows), self._text_of)

    def __len__(self) -> int:
        return self._table.num_rows

    def __eq__(self, other: object) -> bool:
        """Whether the other one, or an Arrow table, has the same columns and rows."""
        table = other._table if isinstance(other, ResultSet) else other
        return self._table.equals(table) if isinstance(table, pa.Table) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, column: str | int) -> pa.ChunkedArray:
        """A column by name or position."""
        return self._table[column]

    def __getattr__(self, name: str) -> Any:
        """Of the Arrow table."""
        if name.startswith("_") or not hasattr(self._table, name):
            raise no_attribute(self, name, ELSEWHERE)
        return getattr(self._table, name)

    def _text(self, limit: int, width: int | None) -> str:
        from relational.display.cells import visible_lines

        if self._text_of is None:
            return super()._text(limit, width)
        return "\n".join(visible_lines(text) for text in self._table[self._text_of].to_pylist())

    def _repr_html_(self) -> str:
        from relational.display.html import html_of_text

        return super()._repr_html_() if self._text_of is None else html_of_text(repr(self))


def _for_polars(table: pa.Table) -> pa.Table:
    """The table in types that Polars has. InvalidValue."""
    for at, field in enumerate(table.schema):
        if not _is_known_to_polars(field.type):
            try:
                chunks = [_polars_values(chunk) for chunk in table.column(at).chunks or [pa.nulls(0, field.type)]]
            except InvalidValue as error:
                raise error.named(field.name) from error
            table = table.set_column(at, field.name, pa.chunked_array(chunks))
    return table


def _is_known_to_polars(arrow: pa.DataType) -> bool:
    if isinstance(arrow, pa.BaseExtensionType) or arrow == pa.month_day_nano_interval():
        return False
    return all(_is_known_to_polars(arrow.field(at).type) for at in range(arrow.num_fields))


def _polars_values(array: pa.Array) -> pa.Array:
    if _is_known_to_polars(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        return _polars_values(array.storage)
    if pa.types.is_struct(array.type):
        parts = [_polars_values(array.field(at)) for at in range(array.type.num_fields)]
        fields = [pa.field(field.name, part.type) for field, part in zip(array.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if pa.types.is_list(array.type):
        offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int32)
        values = _polars_values(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
        starts = pa.array(offsets - offsets[0])
        return pa.ListArray.from_arrays(starts, values, mask=array.is_null() if array.null_count else None)
    return _durations(array)


def _durations(intervals: pa.Array) -> pa.Array:
    """In microseconds, with days of 24 hours."""
    if not len(intervals):
        return pa.nulls(0, pa.duration("us"))
    parts = np.frombuffer(intervals.buffers()[1], INTERVAL_PARTS, len(intervals), 16 * intervals.offset)
    absent = intervals.is_null().to_numpy(zero_copy_only=False)
    days = parts["days"].astype(np.int64)
    if (((parts["months"] != 0) | (abs(days) > MOST_DURATION_DAYS)) & ~absent).any():
        raise InvalidValue("a Duration of Polars has no months, and at most 2**63 - 1 microseconds: CAST it AS "
                           "VARCHAR, or take its seconds, EXTRACT(EPOCH FROM …)")
    ticks = days * DAY_MICROSECONDS + parts["nanoseconds"] // 1_000
    return pa.array(ticks, pa.int64(), mask=absent).cast(pa.duration("us"))


def display_rows() -> int:
    """How many rows `repr` and notebooks show."""
    given = os.environ.get(DISPLAY_ROWS, "")
    return int(given) if given.isascii() and given.isdigit() else SHOWN_ROWS


def _tuples(table: pa.Table) -> Iterator[Row]:
    row = _row_class(tuple(table.column_names))
    for batch in table.to_batches(max_chunksize=FETCH_ROWS):
        if batch.num_columns:
            yield from map(row, zip(*(column.to_pylist() for column in batch.columns), strict=True))
        else:
            yield from [row()] * batch.num_rows
