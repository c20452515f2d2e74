"""Binds the queries of a checked tree to a logical plan: SELECT, VALUES, UNION and its kin, WITH."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError, ParseError
from relational.expr.bind import ExprBinder, Scope, convert, error_span, is_unknown, span_of, unify, unknown
from relational.expr.expression import Expression, InputRef, Literal
from relational.expr.functions import SET_FUNCTIONS
from relational.expr.scope import FromItem
from relational.expr.unbound import (
    Name,
    Named,
    TextSpan,
    UnboundExpr,
    UnboundLiteral,
    has_aggregate,
    has_joined_value,
    has_name,
    has_subquery,
    is_alike,
)
from relational.plan.asof_join import asof_join
from relational.plan.builder import Arrangement, Selection, Star, arrange, select
from relational.plan.descent import recursions_of, with_recursions_from, with_shares_from
from relational.plan.lateral import lateral_join, written_rows
from relational.plan.logical import ExternalScan, Join, JoinKind, LogicalPlan, Scan, Share, Values, WorkingTable, only
from relational.plan.logical.filter import where
from relational.plan.recursion import recursive
from relational.plan.serialize import plan_from_text
from relational.plan.set_functions import ONE_ROW
from relational.plan.set_operations import SetOperation, check_branches, compared, corresponding, union
from relational.plan.subqueries import Subqueries
from relational.plan.time_windows import hop, session, tumble
from relational.plan.using import join_using, shared_names
from relational.sql.as_of import at_epoch, epoch_of, is_proctime
from relational.sql.context import CatalogReader, FindVariable, no_variables
from relational.sql.determined import with_determined
from relational.sql.expressions import Translator
from relational.sql.files import format_of, reads_files, rows_of_files
from relational.sql.grouping_sets import grouping_of
from relational.sql.names import alias_columns, alias_in_tree, name_in_tree, resolved
from relational.sql.nodes import is_comma
from relational.sql.system_catalog import read_system_table
from relational.sql.table_functions import TableRows, defines_columns, gives_rows, table_rows
from relational.sql.tree import unsupported
from relational.types.data_type import DataType
from relational.types.interval import Interval
from relational.types.schema import Field, Schema

MAX_LIMIT = (1 << 63) - 1
MAX_RELATIONS = 64
"""In one FROM."""
_JOINS = {
    "": JoinKind.INNER,
    "INNER": JoinKind.INNER,
    "CROSS": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "LEFT OUTER": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "RIGHT OUTER": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
    "FULL OUTER": JoinKind.FULL,
}
"""By the words before JOIN."""
_TABLE_FUNCTIONS = {"tumble": 3, "hop": 4, "session": 3}
"""With their numbers of arguments."""
_CLAUSES = ("order", "limit", "offset", "with_")
"""Clauses of a query as a whole, in sqlglot's tree."""
_NAMES: dict[type[exp.Expr], str] = {
    exp.Case: "case",
    exp.Array: "array",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
}
"""Names of items without another name, as in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """What a FROM or a WITH names: its rows, and the schema and hidden columns under which it is read."""

    plan: LogicalPlan
    schema: Schema
    hidden: frozenset[int]

    @classmethod
    def of(cls, plan: LogicalPlan) -> _Relation:
        return cls(plan, plan.schema, plan.hidden)


@dataclass(frozen=True, slots=True)
class _Connection:
    """What a JOIN says, or a comma: its kind and condition."""

    kind: JoinKind
    span: TextSpan | None
    on: exp.Expr | None = None
    using: tuple[exp.Expr, ...] = ()
    is_natural: bool = False
    is_temporal: bool = False
    is_asof: bool = False


class QueryBinder:
    """Binds the queries of one statement. `_named`: the queries of the WITH clauses around the current one, by name;
    inner ones shadow outer ones, and all of them shadow tables, which shadow `variables` of the program."""

    def __init__(self, catalog: CatalogReader, translator: Translator, variables: FindVariable = no_variables):
        self._catalog, self._translate, self._variables = catalog, translator, variables
        translator.known = catalog.snapshot
        self._named: ChainMap[str, _Relation] = ChainMap()
        self._outer: Scope | None = None  # of the query around the current one, if that is in an expression
        self._shares = self._recursions = 0
        self.views: frozenset[int] = frozenset()
        """Ids of the views that the bound query refers to; their queries are inlined in its plan."""

    def query(self, node: exp.Expr) -> LogicalPlan:
        """The plan of a SELECT, VALUES, UNION and its kin, with its WITH. ParseError, BindError or NotFound."""
        outer = self._named
        clause = node.args.get("with_")
        if clause is not None:
            self._with(clause)
        plan = self._select(node) if isinstance(node, exp.Select) else self._arranged(node)
        self._named = outer
        return plan

    def _arranged(self, node: exp.Expr) -> LogicalPlan:
        """A query other than a SELECT, with its ORDER BY and LIMIT."""
        return arrange(self._body(node), self._arrangement(node))

    def _body(self, node: exp.Expr) -> LogicalPlan:
        if node.args.get("alias") is not None:
            raise unsupported(node.args["alias"], self._translate.tree)
        if isinstance(node, exp.Subquery):
            return self.query(node.this)
        if isinstance(node, exp.Values):
            return self.values(node)
        if isinstance(node, exp.Union):
            return self._union(node)
        if isinstance(node, exp.Intersect | exp.Except):
            return self._compared(node)
        raise ParseError("a query is expected here", **error_span(self._translate.span(node)))

    def _with(self, node: exp.With) -> None:
        """Adds the queries of a WITH, each of which sees those before it. Each is shared by its readers."""
        self._named = self._named.new_child()
        for each in node.expressions:
            name, span = alias_in_tree(each, self._translate) or "", self._translate.span(each.args["alias"].this)
            if each.args.get("materialized") is not None:
                reason = "a query of WITH is computed once, unless reading its rows again is cheaper"
                raise ParseError(f"[NOT] MATERIALIZED is not supported: {reason}", **error_span(span))
            if name in self._named.maps[0]:
                raise BindError(f"WITH has two queries called {name!r}", **error_span(span))
            if node.args.get("recursive") and self._refers(each.this, name):
                plan = self._recursive(each, name)
            else:
                plan = self.query(each.this)
            relation = _Relation.of(self.shared(plan))
            self._named[name] = self._renamed(relation, each, name)

    def _refers(self, node: exp.Expr, name: str) -> bool:
        """Whether a relation of this name occurs in a query."""
        tables = (each for each in node.find_all(exp.Table) if each.args.get("db") is None)
        return any(isinstance(each.this, exp.Identifier) and self._translate.identifier(each.this) == name
                   for each in tables)

    def _recursive(self, each: exp.CTE, name: str) -> LogicalPlan:
        """A query of WITH RECURSIVE that refers to itself."""
        node, span = each.this, self._translate.span(each.args["alias"].this)
        if not isinstance(node, exp.Union) or self._refers(node.this, name):
            message = "a query that refers to itself is a query without, UNION [ALL], and one with that reference"
            raise BindError(message, **error_span(span))
        for clause in _CLAUSES:
            if node.args.get(clause) is not None:
                raise unsupported(node.args[clause], self._translate.tree)
        branches = node.this, node.expression
        for branch in branches:
            self._check_branch(branch, SetOperation.UNION)
        base = self.query(node.this)
        base = only(base, base.visible)
        self._recursions += 1
        working = WorkingTable(self._renamed(_Relation.of(base), each, name).schema, self._recursions - 1)
        self._named[name] = _Relation.of(working)
        step = self.query(node.expression)
        spans = [self._translate.span(branch) for branch in branches]
        return recursive(base, step, working, distinct=bool(node.args.get("distinct")), spans=spans)

    def _union(self, node: exp.Union) -> LogicalPlan:
        """A chain of UNION and UNION ALL, from left to right: duplicates among all branches up to the last UNION are
        removed."""
        if node.args.get("by_name"):
            left, right = self._corresponding(node, SetOperation.UNION)
            return union((left, right), distinct=bool(node.args.get("distinct")))
        branches: list[exp.Expr] = []
        is_distinct: list[bool] = []
        first: exp.Expr = node
        while isinstance(first, exp.Union) and not first.args.get("by_name"):
            branches.append(first.expression)
            is_distinct.append(bool(first.args.get("distinct")))
            first = first.this
        branches.append(first)
        check_branches(len(branches))
        branches.reverse()
        is_distinct.reverse()
        for branch in branches:
            self._check_branch(branch, SetOperation.UNION)
        plans = [self.query(branch) for branch in branches]
        spans = [self._translate.span(branch) for branch in branches]
        last = max((number for number, distinct in enumerate(is_distinct, 1) if distinct), default=0) + 1
        if last > 1:
            plans[:last] = [union(plans[:last], distinct=True, spans=spans[:last])]
            spans[:last] = spans[:1]
        return union(plans, distinct=False, spans=spans) if len(plans) > 1 else plans[0]

    def _compared(self, node: exp.Intersect | exp.Except) -> LogicalPlan:
        """INTERSECT or EXCEPT of two queries; INTERSECT binds tighter than UNION and EXCEPT."""
        operation = SetOperation.INTERSECT if isinstance(node, exp.Intersect) else SetOperation.EXCEPT
        if node.args.get("by_name"):
            left, right = self._corresponding(node, operation)
            return compared(operation, left, right, distinct=bool(node.args.get("distinct")))
        for branch in (node.this, node.expression):
            self._check_branch(branch, operation)
        left, right = self.query(node.this), self.query(node.expression)
        spans = [self._translate.span(branch) for branch in (node.this, node.expression)]
        return compared(operation, left, right, distinct=bool(node.args.get("distinct")), spans=spans)

    def _corresponding(
        self, node: exp.SetOperation, operation: SetOperation
    ) -> tuple[LogicalPlan, LogicalPlan]:
        """Both queries of a set operation with CORRESPONDING, reduced to the columns of the same names."""
        for branch in (node.this, node.expression):
            self._check_branch(branch, operation)
        names = None if not node.args.get("on") else [self._translate.identifier(each.this) for each in node.args["on"]]
        span = self._translate.span(node.args["on"][0] if names else node.expression)
        return corresponding(self.query(node.this), self.query(node.expression), names, span)

    def _check_branch(self, node: exp.Expr, operation: SetOperation) -> None:
        """ParseError for clauses of a branch without parentheses: they could be meant for the whole."""
        for clause in () if isinstance(node, exp.Subquery) else _CLAUSES:
            part = node.args.get(clause)
            if part is not None:
                raise ParseError(
                    f"a branch of {operation.article} with ORDER BY, LIMIT or WITH stands in parentheses",
                    **error_span(self._translate.span(part)),
                )

    def _select(self, node: exp.Select) -> LogicalPlan:
        plan, scope = self._source(node.args.get("from_"), node.args.get("joins") or ())
        return select(plan, with_determined(self._selection(node), scope), scope, self)

    def term(self, node: exp.Expr) -> UnboundExpr:
        """The term of an expression of the statement."""
        return self._translate.term(node)

    def subquery(self, node: exp.Expr, scope: Scope) -> LogicalPlan:
        """The plan of a query in an expression over the columns of `scope`."""
        outer, self._outer = self._outer, scope
        try:
            return self.query(node)
        finally:
            self._outer = outer

    def _selection(self, node: exp.Select) -> Selection:
        where, having, distinct = (node.args.get(name) for name in ("where", "having", "distinct"))
        first_of = None if distinct is None else distinct.args.get("on")
        self._translate.name_windows(node.args.get("windows") or ())
        groups, sets = grouping_of(node.args.get("group"), self._translate)
        items = tuple(self._item(each) for each in node.expressions)
        return Selection(
            items=items,
            where=None if where is None else self._translate.term(where.this),
            groups=groups if sets is None else _with_items(groups, items),
            sets=sets,
            having=None if having is None else self._translate.term(having.this),
            distinct=distinct is not None and first_of is None,
            first_of=() if first_of is None else tuple(map(self._translate.term, _parts(first_of))),
            arrangement=self._arrangement(node),
        )

    def _arrangement(self, node: exp.Expr) -> Arrangement:
        order = node.args.get("order")
        return Arrangement(
            order=() if order is None else tuple(map(self._translate.ordered, order.expressions)),
            limit=self._count(node.args.get("limit"), "LIMIT"),
            offset=self._count(node.args.get("offset"), "OFFSET") or 0,
        )

    # -- relations -------------------------------------------------------------------------------------

    def _source(self, node: exp.From | None, joins: Sequence[exp.Join]) -> tuple[LogicalPlan, Scope]:
        """The relations of a FROM clause and their names; a row without columns if there is none. JOIN binds tighter
        than a comma, and from left to right."""
        if node is None:
            return Values(Schema(), ((),)), Scope.of_items((), self._outer)
        if len(joins) >= MAX_RELATIONS:
            span = self._translate.span(joins[MAX_RELATIONS - 1])
            raise BindError(f"a FROM has at most {MAX_RELATIONS} relations", **error_span(span))
        commas = [at for at, join in enumerate(joins) if is_comma(join)]
        plan: LogicalPlan | None = None
        items: list[FromItem] = []
        for start, end in zip([-1, *commas], [*commas, len(joins)], strict=True):
            first = node.this if start < 0 else joins[start].this
            part = joins[start + 1 : end]
            if plan is not None and _refers_left(first, part, self._translate):
                plan, items = self._chained(plan, items, [joins[start], *part], ())
                continue
            chain, named = self._join_chain(first, part, items)
            if plan is None:
                plan, items = chain, named
            else:
                more = [replace(item, first=len(plan.schema) + item.first) for item in named]
                plan, items = Join(plan, chain, JoinKind.INNER, None), [*items, *more]
        assert plan is not None
        return plan, Scope.of_items(items, self._outer)

    def _join_chain(
        self, first: exp.Expr, joins: Sequence[exp.Join], others: Sequence[FromItem]
    ) -> tuple[LogicalPlan, list[FromItem]]:
        """Relations between two commas. BindError if one has the name of another, or of one of `others`."""
        return self._chained(*self._named_items(first, others), joins, others)

    def _chained(
        self, plan: LogicalPlan, items: list[FromItem], joins: Sequence[exp.Join], others: Sequence[FromItem]
    ) -> tuple[LogicalPlan, list[FromItem]]:
        """The rows of `plan`, joined with one relation after the other."""
        for join in joins:
            connection = self._connection(join)
            if _is_lateral(join.this, self._translate) and connection.kind in (JoinKind.INNER, JoinKind.LEFT):
                plan, items = self._lateral(plan, items, join.this, connection, others)
                continue
            right, more = self._named_items(join.this, (*others, *items), is_temporal=connection.is_temporal)
            more = [replace(item, first=len(plan.schema) + item.first) for item in more]
            plan, items = self._joined(plan, right, connection, items, more)
        return plan, items

    def _lateral(
        self,
        left: LogicalPlan,
        items: list[FromItem],
        node: exp.Expr,
        connection: _Connection,
        others: Sequence[FromItem],
    ) -> tuple[LogicalPlan, list[FromItem]]:
        """The rows of `left`, each with those of a subquery or a function that may refer to its columns."""
        if connection.using or connection.is_natural:
            message = "LATERAL and functions in FROM are joined by ON, not by USING or NATURAL"
            raise ParseError(message, **error_span(connection.span))
        scope, is_inner = Scope.of_items(items, self._outer), connection.kind is JoinKind.INNER
        condition = None if connection.on is None or _is_true(connection.on) else connection.on
        is_beside = gives_rows(node, self._translate) and (is_inner or condition is None)
        if gives_rows(node, self._translate):
            assert isinstance(node, exp.Table | exp.Lateral)
            rows, path = self._rows_of_function(node, scope if is_beside else Scope.of_items((), scope))
            relation = _Relation(left if is_beside else rows.over(ONE_ROW), rows.schema, rows.hidden)
        else:
            rows, alias = None, alias_in_tree(node, self._translate)
            relation, path = _Relation.of(self.subquery(node.this.this, scope)), () if alias is None else (alias,)
        self._check_new(path, node, (*others, *items))
        named = self._renamed(relation, node, path[-1] if path else "")
        both = [*items, FromItem(named.schema, named.hidden, path, first=len(left.schema))]
        on = None
        if condition is not None:
            on = ExprBinder(Scope.of_items(both, self._outer)).condition(self._translate.term(condition), "ON")
        if rows is not None and is_beside:
            return where(rows.over(left, is_outer=not is_inner), () if on is None else (on,)), both
        span = self._translate.span(node)
        return lateral_join(left, relation.plan, connection.kind, on, scope.depth, self.shared, span), both

    def _rows_of_function(self, node: exp.Table | exp.Lateral, scope: Scope) -> tuple[TableRows, tuple[str, ...]]:
        alias = alias_in_tree(node, self._translate)
        rows = table_rows(node, alias, ExprBinder(scope), self._translate)
        return rows, (alias or node.this.name.lower(),)

    def _check_new(self, path: tuple[str, ...], node: exp.Expr, others: Sequence[FromItem]) -> None:
        """BindError if one of `others` has the name of a relation."""
        if path and any(path == other.path for other in others):
            message = f"relation {path[-1]!r} occurs twice in FROM: give one of them an alias, {path[-1]} AS …"
            raise BindError(message, **error_span(self._translate.span(node)))

    def _is_temporal(self, node: exp.Expr) -> bool:
        """Whether a relation after JOIN is one FOR SYSTEM_TIME AS OF PROCTIME()."""
        return is_proctime(node.args.get("version"))

    def _named_items(
        self, node: exp.Expr, others: Sequence[FromItem], *, is_temporal: bool = False
    ) -> tuple[LogicalPlan, list[FromItem]]:
        """A relation of a FROM, or joined ones in parentheses."""
        if is_proctime(node.args.get("version")) and not is_temporal:
            reason = "FOR SYSTEM_TIME AS OF PROCTIME() is of the right side of a JOIN"
            raise BindError(reason, **error_span(self._translate.span(node)))
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and node.args.get("alias") is None:
            table = exp.Table(**{name: part for name, part in node.this.args.items() if name != "joins"})
            return self._join_chain(table, node.this.args.get("joins") or (), others)
        relation, path = self._from_item(node)
        version = node.args.get("version")
        if isinstance(version, exp.Version) and not is_temporal:
            relation = self._at_time(relation, node, version)
        self._check_new(path, node, others)
        relation = self._renamed(relation, node, path[-1] if path else "")
        key = relation.plan.table.pk_indices if isinstance(relation.plan, Scan) else ()
        known = frozenset(key) - relation.hidden
        return relation.plan, [
            FromItem(relation.schema, relation.hidden, path, key=known if len(known) == len(key) else frozenset())
        ]

    def _at_time(self, relation: _Relation, node: exp.Expr, version: exp.Version) -> _Relation:
        """A table or view FOR SYSTEM_TIME AS OF an epoch or a time. BindError."""
        span, known = self._translate.span(version) or self._translate.span(node), self._catalog.snapshot
        is_query = node.args.get("db") is None and isinstance(node.this, exp.Identifier) and (
            self._translate.identifier(node.this) in self._named)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or is_query:
            raise BindError("FOR SYSTEM_TIME AS OF is of a table or view", **error_span(span))
        named = self._catalog.find(name_in_tree(node, self._translate)[0])
        if named is None:
            raise BindError("the system catalog has no history", **error_span(span))
        epoch = epoch_of(version, self._translate)
        return replace(relation, plan=at_epoch(relation.plan, epoch, named.id, known, span))

    def _connection(self, node: exp.Join) -> _Connection:
        """How a JOIN connects two relations. ParseError."""
        span = self._translate.span(node)
        if is_comma(node):
            return _Connection(JoinKind.INNER, span)
        name, condition = " ".join(filter(None, (node.side, node.kind))).upper(), node.args.get("on")
        kind, using = _JOINS.get(name), tuple(node.args.get("using") or ())
        is_natural, is_asof = (node.method.upper() == word for word in ("NATURAL", "ASOF"))
        if kind is None or (node.method and not is_natural and not is_asof):
            raise ParseError(f"{node.method.upper()} {name}".strip() + " JOIN is not supported", **error_span(span))
        bare = "NATURAL JOIN" if is_natural else "CROSS JOIN" if name == "CROSS" else None
        if (condition is None and not using) != (bare is not None):
            what = f"{name} JOIN needs ON or USING".lstrip() if bare is None else f"{bare} has no condition"
            raise ParseError(what, **error_span(span))
        if is_asof and condition is None:
            raise ParseError("ASOF JOIN needs ON", **error_span(span))
        return _Connection(kind, span, condition, using, is_natural, self._is_temporal(node.this), is_asof)

    def _joined(
        self,
        left: LogicalPlan,
        right: LogicalPlan,
        connection: _Connection,
        items: list[FromItem],
        more: list[FromItem],
    ) -> tuple[LogicalPlan, list[FromItem]]:
        """Two relations as a JOIN connects them, and the names of both."""
        kind = connection.kind
        if connection.on is not None:
            scope, term = Scope.of_items([*items, *more], self._outer), self._translate.term(connection.on)
            if connection.is_asof:
                on = ExprBinder(scope).condition(term, "ON")
                return asof_join(Join(left, right, kind, on), self.shared, connection.span), [*items, *more]
            if has_subquery(term) and not connection.is_temporal:
                return Subqueries(self, scope).joined_on(Join(left, right, kind, None), term), [*items, *more]
            on = ExprBinder(scope).condition(term, "ON")
            return Join(left, right, kind, on, connection.is_temporal), [*items, *more]
        names = [(self._translate.identifier(each), self._translate.span(each)) for each in connection.using]
        if connection.is_natural:
            names = [(each, connection.span) for each in shared_names(items, more)]
        if not names and kind is JoinKind.INNER and not connection.is_temporal:
            return Join(left, right, kind, None), [*items, *more]
        return join_using(Join(left, right, kind, None, connection.is_temporal), names, items, more)

    def _from_item(self, node: exp.Expr) -> tuple[_Relation, tuple[str, ...]]:
        """A relation and the path by which its columns can be qualified."""
        alias = alias_in_tree(node, self._translate)
        path = () if alias is None else (alias,)
        if gives_rows(node, self._translate):
            assert isinstance(node, exp.Table | exp.Lateral)
            rows, named = self._rows_of_function(node, Scope.of_items((), self._outer))
            return _Relation(rows.over(ONE_ROW), rows.schema, rows.hidden), named
        if isinstance(node, exp.Table) and reads_files(node.this):
            return self._files(node.this), path or (node.this.name.lower(),)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            return self._table_function(node.this), path
        if isinstance(node, exp.Table):
            relation, own = self._table(node)
            return relation, path or own
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            return _Relation.of(self.query(node.this.this)), path
        if isinstance(node, exp.Subquery):
            self._check_plain(node)
            return _Relation.of(self.query(node.this)), path
        if isinstance(node, exp.Values):
            return _Relation.of(self.values(node)), path
        raise unsupported(node, self._translate.tree)

    def _table_function(self, node: exp.Anonymous) -> _Relation:
        """TUMBLE (relation, time, size [, offset]), HOP (relation, time, slide, size [, offset]) or SESSION (relation,
        time, gap [, key, …])."""
        name, span, args = node.name.lower(), self._translate.span(node), node.expressions
        if name not in _TABLE_FUNCTIONS:
            known = (*_TABLE_FUNCTIONS, *sorted(SET_FUNCTIONS))
            raise BindError(unknown("table function", name, known), **error_span(span))
        most = MAX_RELATIONS if name == "session" else 1
        if not 0 <= len(args) - _TABLE_FUNCTIONS[name] <= most:
            wanted = f"{_TABLE_FUNCTIONS[name]} arguments, or {'more' if name == 'session' else 'one more'}"
            raise BindError(f"{name} takes {wanted}, not {len(args)}", **error_span(span))
        relation = self._argument(args[0])
        binder = ExprBinder(Scope(relation.schema, relation.hidden))
        column = self._column_of(binder, args[1], name)
        lengths = [self._interval(binder, each) for each in args[2 : _TABLE_FUNCTIONS[name]]]
        if name == "session":
            keys = tuple(self._column_of(binder, each, name).index for each in args[3:])
            return _with_times(relation, session(relation.plan, column, lengths[0], keys, span))
        offset = Interval()
        if len(args) > _TABLE_FUNCTIONS[name]:
            offset = self._interval(binder, args[-1])
        if name == "tumble":
            plan = tumble(relation.plan, column, lengths[0], span, offset)
        else:
            plan = hop(self.shared(relation.plan), column, lengths[0], lengths[1], span, offset)
        return _with_times(relation, plan)

    def _files(self, node: exp.Anonymous) -> _Relation:
        """A function that reads files. BindError in a view."""
        reason = f"a view reads files by CREATE SOURCE, not by {node.name.lower()}"
        self._translate.check_momentary(reason, self._translate.span(node))
        return _Relation.of(rows_of_files(node, self._translate, self._catalog))

    def _column_of(self, binder: ExprBinder, node: exp.Expr, name: str) -> InputRef:
        """A column of the relation of a table function."""
        column = binder.bind(self._translate.term(node))
        if not isinstance(column, InputRef):
            raise BindError(f"{name} is of a column of the relation", **error_span(self._translate.span(node)))
        return column

    def _argument(self, node: exp.Expr) -> _Relation:
        """A relation that is an argument: a name, or a query in parentheses."""
        if isinstance(node, exp.Subquery | exp.Select):
            return _Relation.of(self.query(node))
        if isinstance(node, exp.Column):
            parts = {"this": node.this, "db": node.args.get("table"), "catalog": node.args.get("db")}
            return self._table(exp.Table(**{name: part for name, part in parts.items() if part is not None}))[0]
        raise BindError("a relation is expected here", **error_span(self._translate.span(node)))

    def _interval(self, binder: ExprBinder, node: exp.Expr) -> Interval:
        """A constant length of time."""
        bound = binder.bind(self._translate.term(node))
        if not isinstance(bound, Literal) or not isinstance(bound.value, Interval):
            raise BindError("a constant INTERVAL is expected here", **error_span(self._translate.span(node)))
        return bound.value

    def shared(self, plan: LogicalPlan) -> Share:
        """A plan with several readers."""
        self._shares += 1
        return Share(plan, self._shares - 1)

    def _check_plain(self, node: exp.Subquery) -> None:
        """ParseError for a derived table with clauses of its own after the parenthesis, which SQL does not have."""
        for clause in _CLAUSES:
            part = node.args.get(clause)
            if part is not None:
                raise unsupported(part, self._translate.tree)

    def _table(self, node: exp.Table) -> tuple[_Relation, tuple[str, ...]]:
        """A query of a WITH, a table or a view, by its name."""
        if node.args.get("db") is None and isinstance(node.this, exp.Identifier):
            name = self._translate.identifier(node.this)
            if name in self._named:
                return self._named[name], (name,)
        full_name, span = name_in_tree(node, self._translate)
        listed = read_system_table(self._catalog, full_name, node.args.get("db") is not None, span)
        if listed is not None:
            self._translate.check_momentary(f"{full_name.name} lists the catalog of the moment", span)
            return _Relation.of(listed), (full_name.database, full_name.schema, full_name.name)
        form = None if node.args.get("db") is not None else format_of(full_name.name)
        if form is not None and self._catalog.find(full_name) is None:
            self._translate.check_momentary("a view reads files by CREATE SOURCE", span)
            rows = ExternalScan(self._catalog.open_rows(form, full_name.name, {}))
            return _Relation.of(rows), (full_name.name,)
        if node.args.get("db") is None and self._catalog.find(full_name) is None:
            variable = self._variable(node.this.name, span)
            if variable is not None:
                return _Relation.of(variable), (full_name.name,)
        table = resolved(self._catalog, full_name, span)
        plan = rows_of(table, self._catalog)
        if table.kind is TableKind.VIEW:
            self.views |= {table.id}
            plan = self._inlined(plan)
        return _Relation.of(plan), (full_name.database, full_name.schema, full_name.name)

    def _variable(self, name: str, span: TextSpan | None) -> LogicalPlan | None:
        """The rows of a variable of the program, if there is one of this very name, in a statement that is executed at
        once. BindError."""
        try:
            found = self._variables(name)
        except BindError as error:
            raise BindError(f"the variable {name!r}: {error.message}", **error_span(span)) from error
        if found is None:
            return None
        if not self._translate.is_momentary:
            reason = f"{name!r} is a variable of the program, not of the store: create_table({name!r}, {name}) makes it"
            raise BindError(f"{reason} a table, which a view can read", **error_span(span))
        self.views |= found.views
        return self._inlined(found.plan)

    def _inlined(self, plan: LogicalPlan) -> LogicalPlan:
        """The plan of another query as a part of this one."""
        plan = with_recursions_from(with_shares_from(plan, self._shares), self._recursions)
        self._shares = max((self._shares - 1, *plan.properties.shares)) + 1
        self._recursions = max((self._recursions - 1, *recursions_of(plan))) + 1
        return plan

    def _renamed(self, relation: _Relation, node: exp.Expr, name: str) -> _Relation:
        """The relation with the column names that its alias lists: those of the first visible columns. BindError if
        there are more names than columns."""
        written = [] if defines_columns(node, self._translate) else alias_columns(node, self._translate)
        if not written:
            return relation
        shown = [position for position in range(len(relation.schema)) if position not in relation.hidden]
        if len(written) > len(shown):
            raise BindError(
                f"{len(written)} names for the {len(shown)} columns of {name!r}",
                **error_span(self._translate.span(node.args["alias"])),
            )
        names = dict(zip(shown, written, strict=False))
        fields = (Field(names.get(at, field.name), field.data_type) for at, field in enumerate(relation.schema))
        return _Relation(relation.plan, Schema(fields), relation.hidden)

    # -- clauses ---------------------------------------------------------------------------------------

    def _item(self, node: exp.Expr) -> Named | Star:
        span = self._translate.span(node)
        if isinstance(node, exp.Star):
            return Star((), span, omitted=self._omitted(node))
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            return Star(self._translate.qualifier(node), span, omitted=self._omitted(node.this))
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
            self._translate.check_whole(node.expression)
            return Star((), span, self._translate.term(node.this))
        if isinstance(node, exp.Alias):
            return Named(self._translate.term(node.this), self._translate.identifier(node.args["alias"]))
        return Named(self._translate.term(node), self._output_name(node))

    def _omitted(self, node: exp.Star) -> tuple[Name, ...]:
        """The columns that * EXCEPT (…) leaves out."""
        names = [self._translate.term(each) for each in node.args.get("except_") or ()]
        for name in names:
            if not isinstance(name, Name):
                raise BindError("EXCEPT takes names of columns", **error_span(span_of(name)))
        return tuple(name for name in names if isinstance(name, Name))

    def _output_name(self, node: exp.Expr) -> str:
        """The name of an item without an alias: the column's, the function's, else `?column?`, as in PostgreSQL."""
        while isinstance(node, exp.Cast | exp.Paren | exp.Filter | exp.Window | exp.WithinGroup):
            node = node.this
        if isinstance(node, exp.Dot):
            node = node.expression
        if isinstance(node, exp.Identifier):
            return self._translate.identifier(node)
        if isinstance(node, exp.Column):
            return self._translate.identifier(node.this)
        if isinstance(node, exp.Anonymous):
            return node.name.lower()
        return _NAMES.get(type(node), "?column?")

    def _count(self, node: exp.Expr | None, clause: str) -> int | None:
        """The constant of a LIMIT or OFFSET, as BIGINT; None for LIMIT ALL and for NULL."""
        if node is None:
            return None
        value = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
        if value is None or (isinstance(value, exp.Var) and value.name.upper() == "ALL"):
            return None
        span, term = self._translate.span(value), self._translate.term(value)
        refusal = ParseError(f"{clause} takes a constant whole number", **error_span(span))
        if has_name(term) or has_joined_value(term) or has_aggregate(term):
            raise refusal
        bound = ExprBinder(Scope(Schema())).bind(term)
        if bound.data_type.is_numeric or is_unknown(bound):
            try:
                bound = convert(bound, DataType.BIGINT, span)
            except BindError as error:
                raise refusal from error
        if not isinstance(bound, Literal) or bound.data_type != DataType.BIGINT:
            raise refusal
        if bound.value is not None and not 0 <= bound.value <= MAX_LIMIT:
            raise refusal
        return bound.value

    # -- VALUES ----------------------------------------------------------------------------------------

    def values(self, node: exp.Values) -> LogicalPlan:
        """VALUES: rows of constants, or over the row of a query around it; each column of the common type of its
        values."""
        columns = [unify(column, "the values of a column", span)[0] for column, span in _columns(self.cells(node))]
        return written_rows([f"column{number}" for number in range(1, len(columns) + 1)], columns)

    def cells(self, node: exp.Values) -> list[list[tuple[Expression, TextSpan | None]]]:
        """The bound cells of VALUES row by row, each with its span; all rows have the same length."""
        binder = ExprBinder(Scope.of_items((), self._outer))
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


def _with_items(groups: Sequence[UnboundExpr], items: Sequence[Named | Star]) -> tuple[UnboundExpr, ...]:
    """The groups, of which each is the very term of the first item that is written like it, else of the first such
    group: of a constant only that item is the group."""
    known = [item.term for item in items if isinstance(item, Named)]
    found: list[UnboundExpr] = []
    for group in groups:
        is_direct = isinstance(group, Name | UnboundLiteral)
        others = found if is_direct else (*known, *found)
        found.append(next((term for term in others if is_alike(term, group)), group))
    return tuple(found)


def _refers_left(first: exp.Expr, joins: Sequence[exp.Join], translate: Translator) -> bool:
    """Whether a relation between two commas may refer to those before the first one: its joins then continue these."""
    is_lateral = any(_is_lateral(each, translate) for each in (first, *(join.this for join in joins)))
    return is_lateral and not any(join.side.upper() in ("RIGHT", "FULL") for join in joins)


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """The expressions of a list in parentheses; of one in parentheses that one."""
    return node.expressions if isinstance(node, exp.Tuple) else [node]


def _is_lateral(node: exp.Expr, translate: Translator) -> bool:
    """Whether a relation may refer to those before it."""
    return gives_rows(node, translate) or (isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery))


def _is_true(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Boolean) and bool(node.this)


def _with_times(relation: _Relation, plan: LogicalPlan) -> _Relation:
    """The relation with the columns that `plan` adds to it."""
    return _Relation(plan, Schema((*relation.schema, *plan.schema.fields[len(relation.schema) :])), relation.hidden)


def rows_of(table: TableCatalog, catalog: CatalogReader) -> LogicalPlan:
    """The scan of a table, or the query of a view. FunctionsNotAllowed."""
    if table.kind is not TableKind.VIEW:
        return Scan(table)
    catalog.check_functions([table])
    return plan_from_text(table.plan, catalog.get)


def _columns(rows: list[list[tuple[Expression, TextSpan | None]]]):
    """Rows of cells with spans, as columns of cells; each column with the span of its first cell."""
    for column in zip(*rows, strict=True):
        yield [cell for cell, _ in column], column[0][1]
