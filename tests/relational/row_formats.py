"""Suites of tables that hold in each row format: a file that uses the fixture `row_format` runs in each."""

from dataclasses import replace

from relational.catalog.objects import RowFormat, TableCatalog

_present = [RowFormat.ROW]


def choose(row_format: RowFormat) -> None:
    _present[0] = row_format


def formatted(catalog: TableCatalog) -> TableCatalog:
    """The table in the row format of the test that runs."""
    return replace(catalog, row_format=_present[0])
