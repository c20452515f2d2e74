"""INSERT, UPDATE and DELETE bound to a table: values converted to the columns' types, conditions over
its rows.
"""

from __future__ import annotations

from sqlglot import exp

from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError, ParseError
from relational.expr.bind import Scope, TermBinder, convert, is_unknown, place_of, span, unknown
from relational.expr.coercion import can_assign
from relational.expr.expression import Expression, InputRef, Literal
from relational.expr.term import Place
from relational.plan.logical import LogicalPlan, Project, Scan, Values
from relational.sql.context import BindContext
from relational.sql.query import QueryBinder, resolved
from relational.sql.statement import Delete, Insert, Update
from relational.sql.text import Piece, TokenReader
from relational.sql.translate import Translator
from relational.types.data_type import DataType


def bind_insert(piece: Piece, context: BindContext) -> Insert:
    """INSERT INTO table [(columns)] VALUES … or SELECT …"""
    reader = TokenReader(piece)
    reader.expect("INSERT")
    reader.expect("INTO")
    place = reader.place
    table = writable(resolved(context.catalog, reader.name("a table"), place), place)
    columns = _target_columns(reader, table)
    rest = reader.rest()
    node = rest.parse()
    binder = QueryBinder(context.catalog, Translator(rest.start, context.now))
    if isinstance(node, exp.Values):
        return Insert(table, _values(binder, node, table, columns))
    query = binder.query(node)
    shown = [place for place in range(len(query.schema)) if place not in query.hidden]
    _check_count(len(shown), columns, rest)
    sources: dict[int, Expression] = {}
    for column, source in zip(columns, shown, strict=True):
        value = InputRef(source, query.schema.types[source])
        sources[column] = assigned(value, table, column, (rest.start, rest.end))
    return Insert(table, Project(query, _row(table, sources), table.schema.names))


def _target_columns(reader: TokenReader, table: TableCatalog) -> list[int]:
    """The columns that values are given for: those written, else all visible ones."""
    rest = reader.rest()
    if reader.peek() is None or reader.peek().text != "(" or rest.source[1:].lstrip()[:6].upper() == "SELECT":
        return list(table.visible_indices)
    reader.expect("(")
    columns: list[int] = []
    while True:
        place = reader.place
        column = column_of(table, reader.name("a column"), place)
        if column in columns:
            raise BindError(f"column {table.columns[column].name!r} appears twice", **span(place))
        columns.append(column)
        if not reader.accept(","):
            break
    reader.expect(")")
    return columns


def _values(binder: QueryBinder, node: exp.Values, table: TableCatalog, columns: list[int]) -> LogicalPlan:
    """Each cell converted to its column's type, so that an error points at the cell."""
    rows = []
    for row in binder.cells(node):
        if len(row) != len(columns):
            place = row[0][1] if row else None
            raise BindError(f"{len(row)} values for {len(columns)} columns", **span(place))
        cells = zip(columns, row, strict=True)
        rows.append(_row(table, {column: assigned(cell, table, column, at) for column, (cell, at) in cells}))
    return Values(table.schema, tuple(rows))


def _row(table: TableCatalog, sources: dict[int, Expression]) -> tuple[Expression, ...]:
    """One value per stored column; NULL where none is given."""
    return tuple(
        sources.get(index, Literal(None, column.data_type)) for index, column in enumerate(table.columns)
    )


def _check_count(count: int, columns: list[int], piece: Piece) -> None:
    if count != len(columns):
        raise BindError(f"{count} values for {len(columns)} columns", start=piece.start, end=piece.end)


def bind_update(piece: Piece, context: BindContext) -> Update:
    """UPDATE table SET column = value, … [WHERE condition]."""
    node, translate = piece.parse(), Translator(piece.start, context.now)
    translate.only(node, {"this", "expressions", "where"}, "UPDATE")
    table, binder = _target(node, context, translate)
    _refuse_append_only(table, "UPDATE", translate.place(node.this))
    assignments: dict[int, Expression] = {}
    for each in node.expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise ParseError("SET takes column = value, …", **span(translate.place(each)))
        place = translate.place(each.this)
        column = column_of(table, translate.identifier(each.this.this), place)
        if column in table.pk_indices:
            name = table.columns[column].name
            raise BindError(
                f"primary key column {name!r} cannot be updated: delete and insert", **span(place)
            )
        if column in assignments:
            raise BindError(f"column {table.columns[column].name!r} is set twice", **span(place))
        value = translate.term(each.expression)
        assignments[column] = assigned(binder.bind(value), table, column, place_of(value) or place)
    return Update(table, tuple(assignments.items()), _condition(node, binder, translate))


def bind_delete(piece: Piece, context: BindContext) -> Delete:
    """DELETE FROM table [WHERE condition]."""
    node, translate = piece.parse(), Translator(piece.start, context.now)
    translate.only(node, {"this", "where"}, "DELETE")
    table, binder = _target(node, context, translate)
    _refuse_append_only(table, "DELETE", translate.place(node.this))
    return Delete(table, _condition(node, binder, translate))


def _target(
    node: exp.Expression, context: BindContext, translate: Translator
) -> tuple[TableCatalog, TermBinder]:
    """The table of an UPDATE or DELETE and a binder over its rows."""
    target = node.this
    if not isinstance(target, exp.Table):
        raise ParseError("a table's name is expected here", **span(translate.place(node)))
    translate.only(target, {"this", "alias"}, "a table")
    place = translate.place(target.this)
    table = writable(resolved(context.catalog, translate.identifier(target.this), place), place)
    alias = target.args.get("alias")
    name = table.name if alias is None else translate.identifier(alias.this)
    return table, TermBinder(Scope(table.schema, Scan(table).hidden, name))


def _condition(node: exp.Expression, binder: TermBinder, translate: Translator) -> Expression | None:
    where = node.args.get("where")
    return None if where is None else binder.condition(translate.term(where.this), "WHERE")


def writable(table: TableCatalog, place: Place | None) -> TableCatalog:
    """The table if statements may write it; BindError for a view and for a table fed by a connector."""
    if table.kind is not TableKind.TABLE:
        raise BindError(f"{table.name!r} is a {table.kind}: it changes with its query only", **span(place))
    if table.connector is not None:
        raise BindError(f"table {table.name!r} is written by its connector only", **span(place))
    return table


def _refuse_append_only(table: TableCatalog, statement: str, place: Place | None) -> None:
    if table.is_append_only:
        raise BindError(f"{statement} of append-only table {table.name!r}", **span(place))


def column_of(table: TableCatalog, name: str, place: Place | None) -> int:
    """The number of a visible column."""
    for index in table.visible_indices:
        if table.columns[index].name == name:
            return index
    known = [table.columns[index].name for index in table.visible_indices]
    raise BindError(unknown("column", name, known), **span(place))


def assigned(value: Expression, table: TableCatalog, column: int, place: Place | None) -> Expression:
    """`value` in the type of the column it is stored in; BindError where it cannot be stored there."""
    target: DataType = table.columns[column].data_type
    if not is_unknown(value) and not can_assign(value.data_type, target):
        name = table.columns[column].name
        raise BindError(
            f"column {name!r} is {target}, this is {value.data_type}: write a CAST", **span(place)
        )
    return convert(value, target, place)
