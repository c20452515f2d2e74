"""Table suites for every row format: a file that uses the fixture `row_format` runs once per format."""

from dataclasses import replace

from relational.catalog.objects import RowFormat, TableCatalog

_current = [RowFormat.ROW]


def choose(row_format: RowFormat) -> None:
    _current[0] = row_format


def formatted(catalog: TableCatalog) -> TableCatalog:
    """The table in the row format of the running test."""
    return replace(catalog, row_format=_current[0])
