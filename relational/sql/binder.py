"""From SQL text to statements bound to a catalog.

Statements are classified by their first words and bound one after the other, so that each sees the effects of the ones
before it. Every error has the whole text and a span in it, and prints the line with a caret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from relational.catalog.objects import TableCatalog
from relational.errors import SourceTextError
from relational.expr.bind import unknown
from relational.sql.context import BindContext, CatalogReader, FindVariable, no_variables
from relational.sql.copy import bind_copy
from relational.sql.ddl.alter import bind_alter
from relational.sql.ddl.comment import bind_comment
from relational.sql.ddl.create import bind_create, listed
from relational.sql.ddl.drop import bind_drop
from relational.sql.dml import bind_delete, bind_insert, bind_truncate, bind_update
from relational.sql.elsewhere import STATEMENTS
from relational.sql.explain import bind_explain, running_job
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader, statements
from relational.sql.names import function_named, read_name, read_schema_name, resolved, schema_of
from relational.sql.parameters import Parameters
from relational.sql.prepare import bind_deallocate, bind_execute, bind_prepare
from relational.sql.query import QueryBinder
from relational.sql.settings import bind_reset, bind_set, bind_show, is_true_by_default
from relational.sql.statement import (
    Describe,
    Flush,
    Select,
    SetOption,
    Show,
    ShowCreate,
    ShowCreateFunction,
    ShowEpochs,
    ShowErrors,
    ShowJobs,
    ShowKind,
    ShowMemory,
    ShowSubscriptions,
    Statement,
)
from relational.sql.subscriptions import bind_subscribe
from relational.sql.transactions import bind_begin, bind_close, bind_declare, bind_end, bind_fetch
from relational.sql.tree import parse


def bind_sql(
    text: str,
    catalog: CatalogReader,
    now: datetime | None = None,
    parameters: Parameters | None = None,
    is_set: Callable[[str], bool] = is_true_by_default,
    variables: FindVariable = no_variables,
) -> Iterator[Statement]:
    """The statements of a text, each bound lazily. ParseError or BindError at the span.

    `now` is the value of now() in queries and data changes; None rejects now(). `parameters`: of the only statement.
    `is_set(name)`: whether a setting of the session is true when a statement is bound. `variables`: of the
    program, which a FROM names.
    """
    context = BindContext(catalog, now, parameters, is_set, variables)
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
    """Binds one statement."""
    words = piece.words(1)
    first = words[0] if words else ""
    if first == "" and piece.source.lstrip().startswith("("):
        return _select(piece, context)
    binder = _STATEMENTS.get(first)
    if binder is None:
        if first in STATEMENTS:
            raise piece.error(f"there is no statement {first!r}: {STATEMENTS[first]}")
        raise piece.error(unknown("statement", first, _STATEMENTS))
    return binder(piece, context)


def begins_statement(text: str) -> bool:
    """Whether the first word of a text is one of a statement, of this engine or of others."""
    words = Piece(text, 0, len(text)).words(1)
    return words[0] in _STATEMENTS.keys() | STATEMENTS.keys() if words else text.lstrip().startswith("(")


def _select(piece: Piece, context: BindContext) -> Select:
    tree = parse(piece)
    translate = Translator(tree, context.now, context.parameters, functions=context.functions)
    binder = QueryBinder(context.catalog, translate, context.variables)
    return Select(binder.query(tree.node), binder.views)


def _flush(piece: Piece, context: BindContext) -> Flush:
    TokenReader(piece.after(1)).finish()
    return Flush()


def _show(piece: Piece, context: BindContext) -> Statement:
    """SHOW kind [FROM schema], SHOW CREATE TABLE name, SHOW COLUMNS FROM name, SHOW JOBS, SHOW ERRORS, SHOW EPOCHS,
    SHOW SUBSCRIPTIONS, SHOW MEMORY [FROM job], SHOW setting, SHOW ALL.
    """
    reader = TokenReader(piece.after(1))
    alone = (("JOBS", ShowJobs()), ("ERRORS", ShowErrors()), ("EPOCHS", ShowEpochs()),
             ("SUBSCRIPTIONS", ShowSubscriptions()))
    for word, shown_alone in alone:
        if reader.accept(word):
            reader.finish()
            return shown_alone
    if reader.accept("MEMORY"):
        return _memory(reader, context)
    if reader.accept("CREATE"):
        if reader.accept("FUNCTION") or reader.accept("AGGREGATE"):
            name, span = read_name(reader, "a function")
            reader.finish()
            return ShowCreateFunction(function_named(context.catalog, name, span))
        shown = (("TABLE",), ("SOURCE",), ("MATERIALIZED", "VIEW"), ("VIEW",), ("SINK",), ("INDEX",))
        if not any(reader.accept(*words) for words in shown):
            raise reader.fail(f"{listed(shown)} is expected here")
        return ShowCreate(_named(reader, context))
    if reader.accept("COLUMNS"):
        reader.expect("FROM")
        return Describe(_named(reader, context))
    for kind in ShowKind:
        if reader.accept(*kind.upper().split()):
            return _listing(kind, reader, context)
    others = (*(kind.value for kind in ShowKind), "create", "columns", "memory", *(word.lower() for word, _ in alone))
    if reader.is_done:
        raise reader.fail(f"SHOW is followed by one of {', '.join(others).upper()}, a setting or ALL")
    return bind_show(reader, others)


def _memory(reader: TokenReader, context: BindContext) -> ShowMemory:
    if not reader.accept("FROM"):
        reader.finish()
        return ShowMemory()
    name, span = read_name(reader, "a materialized view, sink, index or table")
    table = running_job(resolved(context.catalog, name, span), span)
    reader.finish()
    return ShowMemory(table)


def _listing(kind: ShowKind, reader: TokenReader, context: BindContext) -> Show:
    schema = None
    if reader.accept("FROM"):
        if kind in (ShowKind.SCHEMAS, ShowKind.DATABASES, ShowKind.INTERNAL_TABLES):
            raise reader.fail(f"{kind} are listed all together, without FROM")
        schema = schema_of(context.catalog, *read_schema_name(reader))
    reader.finish()
    return Show(kind, schema)


def _set(piece: Piece, context: BindContext) -> SetOption:
    return bind_set(TokenReader(piece.after(1)))


def _reset(piece: Piece, context: BindContext) -> SetOption:
    return bind_reset(TokenReader(piece.after(1)))


def _describe(piece: Piece, context: BindContext) -> Describe:
    return Describe(_named(TokenReader(piece.after(1)), context))


def _named(reader: TokenReader, context: BindContext) -> TableCatalog:
    """The table or view named at the end of the statement."""
    name, span = read_name(reader, "a table or view")
    table = resolved(context.catalog, name, span)
    reader.finish()
    return table


_STATEMENTS: dict[str, Callable[[Piece, BindContext], Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "WITH": _select,
    "CREATE": bind_create,
    "ALTER": bind_alter,
    "DROP": bind_drop,
    "COMMENT": bind_comment,
    "INSERT": bind_insert,
    "UPDATE": bind_update,
    "DELETE": bind_delete,
    "TRUNCATE": bind_truncate,
    "COPY": bind_copy,
    "FLUSH": _flush,
    "BEGIN": bind_begin,
    "START": bind_begin,
    "COMMIT": bind_end,
    "END": bind_end,
    "ROLLBACK": bind_end,
    "ABORT": bind_end,
    "DECLARE": bind_declare,
    "FETCH": bind_fetch,
    "CLOSE": bind_close,
    "SUBSCRIBE": bind_subscribe,
    "PREPARE": bind_prepare,
    "EXECUTE": bind_execute,
    "DEALLOCATE": bind_deallocate,
    "SET": _set,
    "RESET": _reset,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": lambda piece, context: bind_explain(piece, context, bind_statement),
}
