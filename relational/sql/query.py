"""Binds a SELECT of a checked tree to a logical plan."""

from __future__ import annotations

from sqlglot import exp

from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import ParseError
from relational.expr.bind import ExprBinder, error_span, literal, span_of, unify
from relational.expr.expression import Expression, Literal
from relational.expr.unbound import Named, Ordered, TextSpan, UnboundExpr, UnboundLiteral
from relational.plan.builder import Scope, Selection, Star, select
from relational.plan.logical import LogicalPlan, Scan, Values
from relational.plan.serialize import plan_from_text
from relational.sql.context import CatalogReader
from relational.sql.expressions import Translator
from relational.sql.names import name_in_tree, resolved
from relational.sql.tree import unsupported
from relational.types.ordering import OrderType
from relational.types.schema import Field, Schema

MAX_LIMIT = (1 << 63) - 1
_NAMES: dict[type[exp.Expr], str] = {
    exp.Case: "case",
    exp.Array: "array",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
}
"""Names of items without another name, as in PostgreSQL."""


class QueryBinder:
    """Binds the queries of one statement."""

    def __init__(self, catalog: CatalogReader, translator: Translator):
        self._catalog, self._translate = catalog, translator
        self.views: frozenset[int] = frozenset()
        """Ids of the views that the bound query refers to; their queries are inlined in its plan."""

    def query(self, node: exp.Expr) -> LogicalPlan:
        """The plan of a SELECT or VALUES. ParseError, BindError or NotFound."""
        while isinstance(node, exp.Subquery) and node.args.get("alias") is None:
            node = node.this
        if isinstance(node, exp.Values):
            return self.values(node)
        if not isinstance(node, exp.Select):
            raise ParseError("a query is expected here", **error_span(self._translate.span(node)))
        plan, qualifier = self._source(node.args.get("from_"))
        return select(plan, self._selection(node), qualifier)

    def _selection(self, node: exp.Select) -> Selection:
        where, having, distinct = (node.args.get(name) for name in ("where", "having", "distinct"))
        if distinct is not None and distinct.expressions:
            raise ParseError("DISTINCT of some columns is not supported", **error_span(self._translate.span(distinct)))
        order = node.args.get("order")
        return Selection(
            items=tuple(self._item(each) for each in node.expressions),
            where=None if where is None else self._translate.term(where.this),
            groups=self._groups(node.args.get("group")),
            having=None if having is None else self._translate.term(having.this),
            distinct=distinct is not None,
            order=() if order is None else tuple(map(self._ordered, order.expressions)),
            limit=self._count(node.args.get("limit"), "LIMIT"),
            offset=self._count(node.args.get("offset"), "OFFSET") or 0,
        )

    def _source(self, node: exp.From | None) -> tuple[LogicalPlan, str | None]:
        """The relation of a FROM clause and its name; a row without columns if there is none."""
        if node is None:
            return Values(Schema(), ((),)), None
        relation = node.this
        if isinstance(relation, exp.Table):
            return self._table(relation)
        if isinstance(relation, exp.Subquery):
            return self.query(relation.this), self._alias(relation)
        if isinstance(relation, exp.Values):
            return self.values(relation), self._alias(relation)
        raise unsupported(relation, self._translate.tree)

    def _table(self, node: exp.Table) -> tuple[LogicalPlan, str]:
        name, span = name_in_tree(node, self._translate)
        table = resolved(self._catalog, name, span)
        if table.kind is TableKind.VIEW:
            self.views |= {table.id}
        return rows_of(table, self._catalog), self._alias(node) or name.name

    def _alias(self, node: exp.Expr) -> str | None:
        alias = node.args.get("alias")
        return None if alias is None else self._translate.identifier(alias.this)

    def _item(self, node: exp.Expr) -> Named | Star:
        span = self._translate.span(node)
        if isinstance(node, exp.Star):
            return Star(None, span)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            return Star(self._translate.identifier(node.args["table"]), span)
        if isinstance(node, exp.Alias):
            return Named(self._translate.term(node.this), self._translate.identifier(node.args["alias"]))
        return Named(self._translate.term(node), self._output_name(node))

    def _output_name(self, node: exp.Expr) -> str:
        """The name of an item without an alias: the column's, the function's, else `?column?`, as in PostgreSQL."""
        while isinstance(node, exp.Cast | exp.Paren | exp.Filter):
            node = node.this
        if isinstance(node, exp.Column):
            return self._translate.identifier(node.this)
        if isinstance(node, exp.Anonymous):
            return node.name.lower()
        return _NAMES.get(type(node), "?column?")

    def _groups(self, node: exp.Group | None) -> tuple[UnboundExpr, ...]:
        return () if node is None else tuple(self._translate.term(each) for each in node.expressions)

    def _ordered(self, node: exp.Ordered) -> Ordered:
        descending, nulls_first = bool(node.args.get("desc")), node.args.get("nulls_first")
        return Ordered(self._translate.term(node.this), OrderType(descending, nulls_first))

    def _count(self, node: exp.Expr | None, clause: str) -> int | None:
        """The constant of a LIMIT or OFFSET; None for LIMIT ALL."""
        if node is None:
            return None
        value = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
        if value is None or (isinstance(value, exp.Var) and value.name.upper() == "ALL"):
            return None
        term = self._translate.term(value)
        bound = literal(term) if isinstance(term, UnboundLiteral) else None
        if (
            not isinstance(bound, Literal)
            or not isinstance(bound.value, int)
            or not 0 <= bound.value <= MAX_LIMIT
        ):
            raise ParseError(f"{clause} takes a constant whole number", **error_span(self._translate.span(value)))
        return bound.value

    def values(self, node: exp.Values) -> LogicalPlan:
        """VALUES: rows of constants, each column of the common type of its values."""
        rows = self.cells(node)
        columns = [unify(column, "the values of a column", span)[0] for column, span in _columns(rows)]
        fields = Schema(Field(f"column{i + 1}", column[0].data_type) for i, column in enumerate(columns))
        return Values(fields, tuple(zip(*columns, strict=True)))

    def cells(self, node: exp.Values) -> list[list[tuple[Expression, TextSpan | None]]]:
        """The bound cells of VALUES row by row, each with its span; all rows have the same length."""
        binder = ExprBinder(Scope(Schema()))
        rows: list[list[tuple[Expression, TextSpan | None]]] = []
        for row in node.expressions:
            parts = row.expressions if isinstance(row, exp.Tuple) else [row]
            terms = [self._translate.term(part) for part in parts]
            if not terms:
                raise ParseError("a row has one value at least", **error_span(self._translate.span(node)))
            if rows and len(terms) != len(rows[0]):
                raise ParseError(
                    f"this row has {len(terms)} values, the first has {len(rows[0])}",
                    **error_span(self._translate.span(row)),
                )
            rows.append([(binder.bind(term), span_of(term)) for term in terms])
        return rows


def rows_of(table: TableCatalog, catalog: CatalogReader) -> LogicalPlan:
    """The scan of a table, or the query of a view."""
    return plan_from_text(table.plan, catalog.get) if table.kind is TableKind.VIEW else Scan(table)


def _columns(rows: list[list[tuple[Expression, TextSpan | None]]]):
    """Rows of cells with spans, as columns of cells; each column with the span of its first cell."""
    for column in zip(*rows, strict=True):
        yield [cell for cell, _ in column], column[0][1]
