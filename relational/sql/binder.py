"""From SQL text to statements bound to a catalog.

Statements are told apart by their first words and bound one after the other, so that each sees what the
ones before it made. Every error carries the whole text and the place in it, and prints the line with a
caret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from relational.catalog.objects import TableKind
from relational.errors import BindError, ParseError, SourceTextError
from relational.expr.bind import span, unknown
from relational.plan.view import view_of
from relational.sql.context import BindContext, CatalogReader
from relational.sql.ddl import read_table, table_of
from relational.sql.dml import bind_delete, bind_insert, bind_update
from relational.sql.query import QueryBinder, resolved
from relational.sql.statement import (
    CreateMaterializedView,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Flush,
    Select,
    Show,
    ShowKind,
    Statement,
)
from relational.sql.text import Piece, TokenReader, statements
from relational.sql.translate import Translator

_CREATABLE = {("TABLE",): TableKind.TABLE, ("MATERIALIZED", "VIEW"): TableKind.MATERIALIZED_VIEW}


def bind_sql(text: str, catalog: CatalogReader, now: datetime | None = None) -> Iterator[Statement]:
    """The statements of a text, each bound when it is asked for. ParseError or BindError at the place.

    `now` is the time that now() stands for in queries and data changes; None refuses it.
    """
    context = BindContext(catalog, now)
    for piece in statements(text):
        try:
            yield bind_statement(piece, context)
        except SourceTextError as error:
            if error.start is None:
                first = piece.error("")
                error.start, error.end = first.start, first.end
            error.text = text
            raise


def bind_statement(piece: Piece, context: BindContext) -> Statement:
    """One statement."""
    words = piece.words(1)
    first = words[0] if words else ""
    if first == "" and piece.source.lstrip().startswith("("):
        return _select(piece, context)
    binder = _STATEMENTS.get(first)
    if binder is None:
        raise piece.error(unknown("statement", first, _STATEMENTS))
    return binder(piece, context)


def _select(piece: Piece, context: BindContext) -> Select:
    return Select(QueryBinder(context.catalog, Translator(piece.start, context.now)).query(piece.parse()))


def _create(piece: Piece, context: BindContext) -> CreateTable | CreateMaterializedView:
    reader = TokenReader(piece)
    reader.expect("CREATE")
    kind = _kind(reader)
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    definition = piece.source.strip()
    if kind is TableKind.TABLE:
        return CreateTable(table_of(read_table(reader), definition), if_not_exists)
    name, place = reader.name("the view"), reader.place
    reader.expect("AS")
    query = reader.rest()
    plan = QueryBinder(context.catalog, Translator(query.start)).query(query.parse())
    try:
        view, plan = view_of(name, plan, definition)
    except BindError as error:
        raise BindError(error.message, **span(place)) from error
    return CreateMaterializedView(view, plan, if_not_exists)


def _kind(reader: TokenReader) -> TableKind:
    """TABLE or MATERIALIZED VIEW."""
    for words, kind in _CREATABLE.items():
        if reader.accept(*words):
            return kind
    raise reader.fail("TABLE or MATERIALIZED VIEW is expected here")


def _drop(piece: Piece, context: BindContext) -> Drop:
    reader = TokenReader(piece)
    reader.expect("DROP")
    kind = _kind(reader)
    if_exists = reader.accept("IF", "EXISTS")
    place = reader.place
    name = reader.name(f"a {kind}")
    cascade = reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    _finish(reader)
    found = context.catalog.find(name)
    if found is None and if_exists:
        return Drop(kind, name, None, cascade)
    table = resolved(context.catalog, name, place)
    if table.kind is not kind:
        raise BindError(f"{name!r} is a {table.kind}: use DROP {table.kind.upper()}", **span(place))
    return Drop(kind, name, table, cascade)


def _flush(piece: Piece, context: BindContext) -> Flush:
    _finish(TokenReader(piece.after(1)))
    return Flush()


def _show(piece: Piece, context: BindContext) -> Show:
    rest = piece.after(1)
    words = " ".join(rest.words(3)).lower()
    for kind in ShowKind:
        if words == kind:
            _finish(TokenReader(rest.after(len(kind.split()))))
            return Show(kind)
    kinds = ", ".join(kind.upper() for kind in ShowKind)
    raise rest.error(f"SHOW is followed by one of {kinds}")


def _describe(piece: Piece, context: BindContext) -> Describe:
    reader = TokenReader(piece.after(1))
    place = reader.place
    table = resolved(context.catalog, reader.name("a table or view"), place)
    _finish(reader)
    return Describe(table)


def _explain(piece: Piece, context: BindContext) -> Explain:
    rest = piece.after(1)
    if rest.words(1) in (("EXPLAIN",), ("SHOW",), ("DESCRIBE",), ("FLUSH",), ()):
        raise rest.error("EXPLAIN is followed by a query, a CREATE or a data change")
    return Explain(bind_statement(rest, context))


def _finish(reader: TokenReader) -> None:
    """ParseError if something follows."""
    if not reader.is_done:
        raise ParseError("nothing is expected here", **span(reader.place))


_STATEMENTS: dict[str, Callable[[Piece, BindContext], Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "WITH": _select,
    "CREATE": _create,
    "DROP": _drop,
    "INSERT": bind_insert,
    "UPDATE": bind_update,
    "DELETE": bind_delete,
    "FLUSH": _flush,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
}
