"""INSERT, UPDATE and DELETE bound to a table: values converted to the columns' types, conditions over its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import BindError, ParseError
from relational.expr.bind import ExprBinder, Scope, error_span, span_of
from relational.expr.expression import Expression, InputRef, Literal, conjunction
from relational.expr.scope import FromItem
from relational.expr.unbound import TextSpan, has_subquery
from relational.plan.changes import assigned, assigned_all, column_of, retractable, stored_row, updatable, writable
from relational.plan.logical import LogicalPlan, Project, Scan, Values, only
from relational.plan.subqueries import Subqueries, conjunction_terms
from relational.sql.context import BindContext
from relational.sql.elsewhere import INSERT_OR
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import alias_columns, alias_in_tree, name_in_tree, read_name, resolved
from relational.sql.query import QueryBinder
from relational.sql.returning import bind_returning, parted
from relational.sql.statement import Delete, Insert, Update
from relational.sql.tree import parse, unsupported
from relational.sql.values import literal_values, scanned

_NAME = r"(?:\w++|\"[^\"]*+\")"
_HEAD = re.compile(
    rf"\s*+INSERT\s++INTO\s++{_NAME}(?:\s*+\.\s*+{_NAME})*+\s*+(?:\([^()'$/-]*+\)\s*+)?+(?P<values>VALUES)\b",
    re.IGNORECASE,
)


def bind_insert(piece: Piece, context: BindContext) -> Insert:
    """INSERT INTO table [(columns)] {VALUES … | SELECT … | DEFAULT VALUES} [RETURNING …]; without a column list, the
    last columns may be omitted."""
    piece, returning = parted(piece)
    head, rows = _parted(piece)
    reader = TokenReader(head)
    reader.expect("INSERT")
    if reader.begins("OR"):
        raise reader.fail(INSERT_OR)
    reader.expect("INTO")
    name, span = read_name(reader, "a table")
    table = writable(resolved(context.catalog, name, span), span)
    query = _inserted(reader, rows, table, context)
    return Insert(table, query, bind_returning(returning, table, name, None, context))


def _inserted(reader: TokenReader, rows: Piece | None, table: TableCatalog, context: BindContext) -> LogicalPlan:
    """The rows of an INSERT. `rows`: VALUES, if they follow what is left of the reader, which otherwise has all."""
    if reader.accept("DEFAULT", "VALUES"):
        reader.finish()
        return Values(table.schema, (stored_row(table, {}),))
    columns = _target_columns(reader, table)
    if rows is not None:
        reader.finish()
        found = _literals(rows, table, columns)
        if found is not None:
            return found
    rest = reader.rest() if rows is None else rows
    tree = parse(rest)
    translate = Translator(tree, context.now, context.parameters, functions=context.functions)
    node, binder = tree.node, QueryBinder(context.catalog, translate, context.variables)
    if isinstance(node, exp.Values):
        if node.args.get("alias") is not None:
            raise unsupported(node.args["alias"], tree)
        return _values(binder, node, table, columns)
    query = binder.query(node)
    shown = [position for position in range(len(query.schema)) if position not in query.hidden]
    sources: dict[int, Expression] = {}
    for column, source in zip(columns.of(len(shown), (rest.start, rest.end)), shown, strict=True):
        value = InputRef(source, query.schema.types[source])
        sources[column] = assigned(value, table, column, (rest.start, rest.end))
    return Project(query, stored_row(table, sources), table.schema.names)


def _parted(piece: Piece) -> tuple[Piece, Piece | None]:
    """Splits at VALUES, if that follows the table's name and columns: the part before, and VALUES with the rest;
    otherwise the whole piece and None.
    """
    match = _HEAD.match(piece.text, piece.start, piece.end)
    if match is None:
        return piece, None
    at = match.start("values")
    return Piece(piece.text, piece.start, at), Piece(piece.text, at, piece.end)


def _literals(rows: Piece, table: TableCatalog, columns: TargetColumns) -> LogicalPlan | None:
    """VALUES of literals only; None if the text must be parsed into a tree."""
    text = rows.after(1).source.encode()
    cells = scanned(text)
    if cells is None:
        return None
    try:
        given = columns.of(cells.shape[1], None)
    except BindError:
        return None
    return literal_values(text, cells, table, given)


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The target columns of values: those listed, else the visible ones, the last of which may be omitted."""

    indices: tuple[int, ...]
    are_written: bool

    def of(self, count: int, span: TextSpan | None) -> tuple[int, ...]:
        """The targets of `count` values; BindError for too many, or for too few with a column list."""
        if count > len(self.indices) or (self.are_written and count < len(self.indices)):
            raise BindError(f"{count} values for {len(self.indices)} columns", **error_span(span))
        return self.indices[:count]


def _target_columns(reader: TokenReader, table: TableCatalog) -> TargetColumns:
    rest, token = reader.rest(), reader.peek()
    is_query = Piece(rest.text, rest.start + 1, rest.end).words(1) in (("SELECT",), ("VALUES",), ("WITH",))
    if token is None or token.text != "(" or is_query:
        return TargetColumns(table.visible_indices, False)
    return TargetColumns(read_columns(reader, table), True)


def read_columns(reader: TokenReader, table: TableCatalog) -> tuple[int, ...]:
    """(column, …): indices of visible columns, each once. BindError, ParseError."""
    reader.expect("(")
    columns: list[int] = []
    while True:
        span = reader.span
        column = column_of(table, reader.name("a column"), span)
        if column in columns:
            raise BindError(f"column {table.columns[column].name!r} appears twice", **error_span(span))
        columns.append(column)
        if not reader.accept(","):
            break
    reader.expect(")")
    return tuple(columns)


def _values(binder: QueryBinder, node: exp.Values, table: TableCatalog, columns: TargetColumns) -> LogicalPlan:
    """Each cell cast to its column's type, so that an error refers to the cell; DEFAULT is as if it were omitted."""
    left_out = _take_defaults(node)
    rows = binder.cells(node)
    given = columns.of(len(rows[0]), rows[0][0][1])
    stored = {column: [default] * len(rows) for column, default in enumerate(stored_row(table, {}))}
    for at, column in enumerate(given):
        written = [number for number in range(len(rows)) if (number, at) not in left_out]
        cells = assigned_all([rows[number][at] for number in written], table, column)
        for number, cell in zip(written, cells, strict=True):
            stored[column][number] = cell
    return Values(table.schema, tuple(zip(*stored.values(), strict=True)))


def _take_defaults(node: exp.Values) -> set[tuple[int, int]]:
    """Row and position of each DEFAULT, whose cell becomes NULL."""
    found = set()
    for number, row in enumerate(node.expressions):
        for at, part in enumerate(list(row.expressions) if isinstance(row, exp.Tuple) else []):
            if isinstance(part, exp.Var) and part.name.upper() == "DEFAULT":
                part.replace(exp.Null())
                found.add((number, at))
    return found


def bind_update(piece: Piece, context: BindContext) -> Update:
    """UPDATE table SET column = value, … [WHERE condition] [RETURNING …], also SET (column, …) = (value, …)."""
    piece, returning = parted(piece)
    tree = parse(piece)
    node, translate = tree.node, Translator(tree, context.now, context.parameters, functions=context.functions)
    target = _target(node, context, translate, "UPDATE")
    table, binder = target.table, target.binder
    assignments: dict[int, Expression] = {}
    for left, written in _assignments(node.expressions, translate):
        span = translate.span(left)
        column = updatable(table, column_of(table, translate.identifier(left.this), span), span)
        if column in assignments:
            raise BindError(f"column {table.columns[column].name!r} is set twice", **error_span(span))
        if _is_default(written):
            assignments[column] = Literal(table.columns[column].default, table.columns[column].data_type)
            continue
        value = translate.term(written)
        assignments[column] = assigned(binder.bind(value), table, column, span_of(value) or span)
    predicate, keys = _condition(node, table, binder, QueryBinder(context.catalog, translate, context.variables))
    returned = bind_returning(returning, table, target.name, target.alias, context)
    return Update(table, tuple(assignments.items()), predicate, keys, returned)


def _assignments(nodes: list[exp.Expr], translate: Translator) -> Iterator[tuple[exp.Column, exp.Expr]]:
    """The columns of SET with their values, those of (a, b) = (x, y) one by one."""
    for node in nodes:
        left, right = node.args.get("this"), node.args.get("expression")
        columns, values = [left], [right]
        if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
            columns, values = left.expressions, right.expressions
        is_pairwise = isinstance(node, exp.EQ) and len(columns) == len(values)
        if not is_pairwise or not all(isinstance(each, exp.Column) for each in columns):
            message = "SET takes column = value, … or (column, …) = (value, …)"
            raise ParseError(message, **error_span(translate.span(node)))
        yield from zip(columns, values, strict=True)


def _is_default(node: exp.Expr) -> bool:
    """Whether this is the word DEFAULT, which sqlglot parses as a column."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return False
    return not node.this.args.get("quoted") and node.name.upper() == "DEFAULT"


def bind_delete(piece: Piece, context: BindContext) -> Delete:
    """DELETE FROM table [WHERE condition] [RETURNING …]."""
    piece, returning = parted(piece)
    tree = parse(piece)
    node, translate = tree.node, Translator(tree, context.now, context.parameters, functions=context.functions)
    target = _target(node, context, translate, "DELETE")
    queries = QueryBinder(context.catalog, translate, context.variables)
    predicate, keys = _condition(node, target.table, target.binder, queries)
    returned = bind_returning(returning, target.table, target.name, target.alias, context)
    return Delete(target.table, predicate, keys, returned)


def bind_truncate(piece: Piece, context: BindContext) -> Delete:
    """TRUNCATE [TABLE] table [RESTART IDENTITY | CONTINUE IDENTITY] [RESTRICT]: a DELETE of all rows, which readers
    follow.
    """
    reader = TokenReader(piece)
    reader.expect("TRUNCATE")
    reader.accept("TABLE")
    name, span = read_name(reader, "a table")
    table = retractable(resolved(context.catalog, name, span), "TRUNCATE", span)
    reader.accept("RESTART", "IDENTITY") or reader.accept("CONTINUE", "IDENTITY")
    reader.accept("RESTRICT")
    reader.finish()
    return Delete(table, None)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table of an UPDATE or DELETE, how it is called there, and a binder over its rows."""

    table: TableCatalog
    name: ObjectName
    alias: str | None
    binder: ExprBinder


def _target(node: exp.Expr, context: BindContext, translate: Translator, statement: str) -> _Target:
    target = node.this
    if not isinstance(target, exp.Table):
        raise ParseError("a table's name is expected here", **error_span(translate.span(node)))
    target_name, span = name_in_tree(target, translate)
    table = retractable(resolved(context.catalog, target_name, span), statement, span)
    if alias_columns(target, translate):
        raise ParseError(f"{statement} takes an alias without column names", **error_span(translate.span(target)))
    alias = alias_in_tree(target, translate)
    path = (alias,) if alias is not None else (target_name.database, target_name.schema, target_name.name)
    binder = ExprBinder(Scope.of_items([FromItem(table.schema, Scan(table).hidden, path)]))
    return _Target(table, target_name, alias, binder)


def _condition(
    node: exp.Expr, table: TableCatalog, binder: ExprBinder, queries: QueryBinder
) -> tuple[Expression | None, LogicalPlan | None]:
    """The terms of a WHERE without subqueries, as one; and, if there are others, the primary keys of the rows for which
    all of it is true."""
    where = node.args.get("where")
    if where is None:
        return None, None
    condition = queries.term(where.this)
    if not has_subquery(condition):
        return binder.condition(condition, "WHERE"), None
    subqueries = Subqueries(queries, binder.scope)
    rows = subqueries.filtered(Scan(table), condition, ExprBinder(binder.scope, subqueries))
    keys = only(rows, table.pk_indices)
    plain = [binder.condition(term, "WHERE") for term in conjunction_terms(condition) if not has_subquery(term)]
    return (conjunction(plain) if plain else None), keys
