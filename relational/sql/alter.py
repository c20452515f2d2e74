"""ALTER TABLE: columns come and go."""

from __future__ import annotations

from relational.catalog.alter import column_place, with_column, without_column
from relational.errors import BindError, CatalogError
from relational.expr.bind import span
from relational.sql.context import BindContext
from relational.sql.ddl import read_column
from relational.sql.names import read_name, resolved
from relational.sql.statement import AddColumn, DropColumn, Nothing
from relational.sql.text import Piece, TokenReader


def bind_alter(piece: Piece, context: BindContext) -> AddColumn | DropColumn | Nothing:
    """ALTER TABLE [IF EXISTS] name ADD [COLUMN] [IF NOT EXISTS] column type [DEFAULT constant], or
    DROP [COLUMN] [IF EXISTS] column [CASCADE | RESTRICT].
    """
    reader = TokenReader(piece)
    reader.expect("ALTER")
    reader.expect("TABLE")
    if_exists = reader.accept("IF", "EXISTS")
    name, place = read_name(reader, "a table")
    if if_exists and context.catalog.find(name) is None:
        return Nothing(f"there is no table {name}")
    table = resolved(context.catalog, name, place)
    names = {table.columns[index].name for index in table.visible_indices}
    if reader.accept("ADD"):
        reader.accept("COLUMN")
        if_not_exists = reader.accept("IF", "NOT", "EXISTS")
        start, end = reader.place
        column = read_column(reader)
        reader.finish()
        if if_not_exists and column.name in names:
            return Nothing(f"table {name} has a column {column.name}")
        try:
            with_column(table, column.name, column.data_type, column.default)
        except CatalogError as error:
            raise BindError(str(error), start=start, end=end) from error
        return AddColumn(table, column.name, column.data_type, column.default)
    if not reader.accept("DROP"):
        raise reader.fail("ADD or DROP is expected here")
    reader.accept("COLUMN")
    if_exists = reader.accept("IF", "EXISTS")
    place = reader.place
    dropped = reader.name("a column")
    cascade = reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    reader.finish()
    if if_exists and dropped not in names:
        return Nothing(f"table {name} has no column {dropped}")
    try:
        without_column(table, dropped)
    except CatalogError as error:
        raise BindError(str(error), **span(place)) from error
    return DropColumn(table, table.columns[column_place(table, dropped)].name, cascade)
