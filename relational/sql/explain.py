"""EXPLAIN: the plan of a statement, or with ANALYZE the figures of a running job."""

from __future__ import annotations

from collections.abc import Callable

from relational.catalog.objects import TableCatalog
from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.unbound import TextSpan
from relational.plan.logical import Scan, nodes
from relational.sql.context import BindContext
from relational.sql.ddl.options import Options, read_options
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece, TokenReader
from relational.sql.names import read_job_kind, read_name, resolved
from relational.sql.query import QueryBinder
from relational.sql.statement import Explain, ExplainAnalyze, Statement
from relational.sql.tree import parse

DURATION = "duration_secs"
DEFAULT_SECONDS, MOST_SECONDS = 1.0, 60.0
_QUERIES = ("SELECT", "WITH", "VALUES", "(")


def bind_explain(
    piece: Piece, context: BindContext, bind: Callable[[Piece, BindContext], Statement]
) -> Explain | ExplainAnalyze:
    """EXPLAIN statement, which `bind` binds; or EXPLAIN ANALYZE [(duration_secs = n)] [MATERIALIZED VIEW | SINK |
    INDEX | TABLE] name, or with a query that reads the rows of one such job.
    """
    rest = piece.after(1)
    first = rest.words(1)
    if first == ("ANALYZE",):
        return _analyze(rest.after(1), context)
    if first in (("EXPLAIN",), ("SHOW",), ("DESCRIBE",), ("FLUSH",), ()):
        raise rest.error("EXPLAIN is followed by a query, a CREATE or a data change")
    return Explain(bind(rest, context))


def seconds_of(text: str) -> float:
    """ValueError unless it is a number above 0, up to MOST_SECONDS."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_SECONDS:
        raise ValueError(f"a number of seconds above 0, up to {MOST_SECONDS:g}")
    return seconds


def _analyze(piece: Piece, context: BindContext) -> ExplainAnalyze:
    reader = TokenReader(piece)
    options = Options()
    if reader.begins("(", DURATION.upper()):
        options = read_options(reader)
    seconds = options.take(DURATION, seconds_of, DEFAULT_SECONDS)
    options.finish("EXPLAIN ANALYZE", (DURATION,))
    span = reader.span
    if any(reader.begins(word) for word in _QUERIES):
        return ExplainAnalyze(_read_by(reader.rest(), context, span), seconds)
    kind = read_job_kind(reader)
    name, span = read_name(reader, "a materialized view, sink, index or table" if kind is None else kind.one)
    reader.finish()
    table = resolved(context.catalog, name, span)
    if kind is not None and table.kind is not kind:
        raise BindError(f"{table.name!r} is {table.kind.one}, not {kind.one}", **error_span(span))
    return ExplainAnalyze(running_job(table, span), seconds)


def _read_by(piece: Piece, context: BindContext, span: TextSpan) -> TableCatalog:
    """The table or view that a query reads, if it is one. BindError."""
    tree = parse(piece)
    plan = QueryBinder(context.catalog, Translator(tree, context.now, functions=context.functions)).query(tree.node)
    tables = {node.table.id: node.table for node in nodes(plan) if isinstance(node, Scan)}
    if len(tables) != 1:
        names = ", ".join(sorted(table.name for table in tables.values())) or "no table"
        reason = f"EXPLAIN ANALYZE measures one running job, this query reads {names}: name a materialized view"
        raise BindError(reason, **error_span(span))
    return running_job(next(iter(tables.values())), span)


def running_job(table: TableCatalog, span: TextSpan) -> TableCatalog:
    """`table`, which was named at `span`; BindError unless it runs a job."""
    if not table.kind.is_job:
        raise BindError(f"{table.name!r} is {table.kind.one}, which runs no job", **error_span(span))
    return table
