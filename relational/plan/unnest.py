"""The plan of a subquery without references to the row of the query around it, and the terms that say which of its rows
belong to a row of that query.

What refers to the outer row goes up through the plan until it is a condition of the join of both queries: a term of a
filter, or of a join, becomes one of these terms; what is above it keeps the columns of the term. Equalities of an outer
expression and an inner one pass aggregations, limits and numberings: the rows of all outer rows are then grouped by the
inner one too. Where that is not enough, because an expression has outer columns, or a row comes of no rows, the plan is
joined with the domain: each combination of the values that the outer columns have, once (Neumann and Kemper, "Unnesting
Arbitrary Queries"). Its columns stand for the outer ones below, and equal them in the terms.

References to rows further out stay: they belong to a plan around this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relational.errors import BindError
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.bind import call, error_span
from relational.expr.expression import (
    Expression,
    InputRef,
    Literal,
    OuterRef,
    conjunction,
    conjuncts,
    equality,
    input_columns,
    input_refs,
    is_equality,
    remap,
    transform,
    walk,
)
from relational.expr.unbound import TextSpan
from relational.expr.window_functions import RankKind
from relational.plan.logical import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    LogicalPlan,
    OverWindow,
    Project,
    ProjectSet,
    Share,
    Sort,
    TopN,
    Union,
    nodes,
    only,
)
from relational.plan.logical.filter import where
from relational.plan.logical.over_window import NO_LIMIT
from relational.plan.logical.project import hidden_name
from relational.plan.set_functions import ONE_ROW
from relational.types.data_type import DataType, TypeKind

Values = Mapping[OuterRef, Expression]
"""What stands for columns of the outer row, over a plan."""
COUNT = AggCall(AggKind.COUNT, None, None, False, DataType.BIGINT)
_SAME_IF_EQUAL = frozenset((
    TypeKind.BOOLEAN, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT, TypeKind.VARCHAR, TypeKind.DATE, TypeKind.TIME,
    TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ, TypeKind.BYTEA,
))  # fmt: skip
"""Kinds of which two equal values are the same value."""


@dataclass(frozen=True, slots=True)
class Unnested:
    """`plan` has the columns of the subquery first. Its rows for an outer row are those for which all `terms` are true,
    over the columns of the plan (InputRef) and of the outer row (OuterRef)."""

    plan: LogicalPlan
    terms: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """A term `outer` = `inner`: an expression over the outer row alone, and one over the plan alone."""

    outer: Expression
    inner: Expression
    is_null_safe: bool


class Domain:
    """The rows of the plan around subqueries, as the values that these read of it: `plan` becomes shared where it is
    read more than once. `share`: makes it that. `outer`: the column of the plan for one of the outer row, None: they
    are the same."""

    def __init__(
        self,
        plan: LogicalPlan,
        share: Callable[[LogicalPlan], Share],
        outer: Callable[[OuterRef], Expression] | None = None,
    ) -> None:
        self.plan, self._share, self._outer = plan, share, outer

    def value(self, column: OuterRef) -> Expression:
        """A column of the outer row over `plan`."""
        return InputRef(column.index, column.data_type) if self._outer is None else self._outer(column)

    def of(self, columns: Sequence[OuterRef]) -> LogicalPlan:
        """Each combination of values of `columns`, once, as hidden columns."""
        if not isinstance(self.plan, Share):
            self.plan = self._share(self.plan)
        values = tuple(map(self.value, columns))
        names = tuple(f"_outer_{number}" for number in range(len(columns)))
        distinct = Aggregate(Project(self.plan, values, names), tuple(range(len(columns))), (), ())
        return Project(distinct, input_refs(distinct.schema.types), names, frozenset(range(len(columns))))


class Unnesting:
    """Of plans that refer to the rows of the query at `depth`, whose domain is `domain`. `span`: of the subquery, for
    errors."""

    def __init__(self, depth: int, domain: Domain, span: TextSpan | None) -> None:
        self._depth, self._domain, self._span = depth, domain, span

    def unnested(self, plan: LogicalPlan) -> Unnested:
        """The plan of a subquery. BindError names an operation that no reference to the outer row can pass."""
        if not self._is_correlated(plan):
            return Unnested(plan)
        rule = _RULES.get(type(plan))
        if rule is None:
            message = f"{type(plan).__name__} above what refers to the query around the subquery is not supported"
            raise BindError(message, **error_span(self._span))
        return rule(self, plan)

    def by_equalities(self, rows: Unnested) -> tuple[Unnested, list[Binding]]:
        """The same rows with equalities as terms."""
        known = self._bindings(rows.terms)
        if known is None:
            rows, _ = self._joined(rows, ())
            known = self._bindings(rows.terms)
            assert known is not None
        return rows, known

    def with_values(self, rows: Unnested, expressions: Iterable[Expression]) -> tuple[Unnested, Values]:
        """The same rows, and what stands over them for the outer columns of `expressions`: what equals them there, or
        else a column of the domain."""
        wanted = self._columns(expressions)
        equal: dict[OuterRef, Expression] = {}
        for term in rows.terms:
            for one, other in (term.args, term.args[::-1]) if is_equality(term) else ():
                is_same = one.data_type == other.data_type and one.data_type.kind in _SAME_IF_EQUAL
                if isinstance(one, OuterRef) and is_same and not self._refers(other):
                    equal[one] = other
        return (rows, equal) if all(each in equal for each in wanted) else self._joined(rows, wanted)

    def value_of(self, expression: Expression, values: Values) -> Expression:
        """The expression with `values` for the outer columns."""
        return transform(expression, lambda node: values.get(node, node) if isinstance(node, OuterRef) else node)

    def as_join_terms(self, terms: Sequence[Expression], width: int) -> tuple[Expression, ...]:
        """Terms over a row of the domain's plan, of `width` columns, and the row of a subquery behind it."""

        def moved(node: Expression) -> Expression:
            return InputRef(width + node.index, node.data_type) if isinstance(node, InputRef) else node

        return tuple(self.of_plan(transform(term, moved)) for term in terms)

    def of_plan(self, expression: Expression) -> Expression:
        """The expression over the domain's plan for the outer columns."""
        return transform(
            expression, lambda node: self._domain.value(node) if self._is_own(node) else node  # type: ignore[arg-type]
        )

    # -- the rule of each operation --------------------------------------------------------------------

    def _below(self, plan: Share | Sort) -> Unnested:
        return self.unnested(plan.input)

    def _filter(self, plan: Filter) -> Unnested:
        below = self.unnested(plan.input)
        inner, outer = self._parted(conjuncts(plan.predicate))
        return Unnested(where(below.plan, inner), (*below.terms, *outer))

    def _project(self, plan: Project) -> Unnested:
        below, values = self.with_values(self.unnested(plan.input), plan.expressions)
        expressions = tuple(self.value_of(each, values) for each in plan.expressions)
        columns = {each.index: at for at, each in reversed(list(enumerate(expressions))) if isinstance(each, InputRef)}
        needed = [column for column in _inner_columns(below.terms) if column not in columns]
        names = list(plan.names)
        for column in needed:
            names.append(hidden_name(below.plan.schema.names[column], names))
        added = tuple(InputRef(column, below.plan.schema.types[column]) for column in needed)
        width = len(expressions)
        concealed = plan.concealed | frozenset(range(width, width + len(added)))
        moved = columns | {column: width + at for at, column in enumerate(needed)}
        above = Project(below.plan, (*expressions, *added), tuple(names), concealed)
        return Unnested(above, tuple(remap(term, moved) for term in below.terms))

    def _aggregate(self, plan: Aggregate) -> Unnested:
        """Grouped by the inner sides of the terms too; one without groups has a row for each row of the domain."""
        filters = [each.filter for each in plan.calls if each.filter is not None]
        below, values = self.with_values(self.unnested(plan.input), filters)
        below, known = self.by_equalities(below)
        calls = tuple(
            each if each.filter is None else replace(each, filter=self.value_of(each.filter, values))
            for each in plan.calls
        )
        source, keys = with_columns(below.plan, [each.inner for each in known])
        added = [key for key in dict.fromkeys(keys) if key not in plan.group_by]
        groups = (*plan.group_by, *added)
        whole = Aggregate(source, groups, calls, plan.names)
        count, more = len(plan.group_by), len(added)
        shown = [*range(count), *range(count + more, len(whole.schema)), *range(count, count + more)]
        position = {groups.index(key): shown.index(groups.index(key)) for key in keys}
        final = [position[groups.index(key)] for key in keys]
        rows = Unnested(
            _arranged(whole, shown, len(plan.schema)),
            tuple(equality(each.outer, InputRef(key, each.inner.data_type), is_null_safe=each.is_null_safe)
                  for each, key in zip(known, final, strict=True)),
        )
        return rows if plan.group_by else self._of_all(rows, plan)

    def _of_all(self, rows: Unnested, plan: Aggregate) -> Unnested:
        """The aggregates of each row of the domain, also of one without rows."""
        columns = self._columns(rows.terms)
        domain = self._domain.of(columns)
        width, count = len(domain.schema), len(plan.calls)
        values = dict(zip(columns, input_refs(domain.schema.types), strict=True))
        moved = {column: width + column for column in range(len(rows.plan.schema))}
        terms = [self.value_of(remap(term, moved), values) for term in rows.terms]
        join = Join(domain, rows.plan, JoinKind.LEFT, conjunction(terms))
        found = [InputRef(width + number, each.data_type) for number, each in enumerate(plan.calls)]
        given = tuple(value if not each.kind.counts else call("coalesce", [value, empty_value(each)])
                      for value, each in zip(found, plan.calls, strict=True))
        names = [*plan.names]
        for name in domain.schema.names:
            names.append(hidden_name(name, names))
        hidden = frozenset(range(count, len(names)))
        above = Project(join, (*given, *input_refs(domain.schema.types)), tuple(names), hidden)
        return Unnested(above, self._equal(columns, range(count, len(names))))

    def _limit(self, plan: Limit) -> Unnested:
        """The first rows of each group of rows that are equal in the inner sides of the terms."""
        keys = plan.input.keys if isinstance(plan.input, Sort) else ()
        below, known = self.by_equalities(self.unnested(plan.input))
        source, columns = with_columns(below.plan, [each.inner for each in known])
        count = NO_LIMIT - plan.offset if plan.count is None else plan.count
        groups = tuple(dict.fromkeys(columns))
        return Unnested(TopN(source, groups, keys, RankKind.ROW_NUMBER, count, plan.offset), below.terms)

    def _numbered(self, plan: OverWindow | TopN) -> Unnested:
        below, known = self.by_equalities(self.unnested(plan.input))
        source, columns = with_columns(below.plan, [each.inner for each in known])
        whole = replace(plan, input=source, groups=tuple(dict.fromkeys((*plan.groups, *columns))))
        width, wider = len(plan.input.schema), len(source.schema)
        shown = [*range(width), *range(wider, len(whole.schema)), *range(width, wider)]
        position = {old: new for new, old in enumerate(shown)}
        terms = tuple(remap(term, position) for term in below.terms)
        return Unnested(_arranged(whole, shown, len(plan.schema)), terms)

    def _project_set(self, plan: ProjectSet) -> Unnested:
        below, values = self.with_values(self.unnested(plan.input), plan.functions)
        functions = tuple(self.value_of(each, values) for each in plan.functions)
        needed = [column for column in _inner_columns(below.terms) if column not in plan.passed]
        whole = replace(plan, input=below.plan, passed=(*plan.passed, *needed), functions=functions)
        width, more = len(plan.passed), len(needed)
        shown = [*range(width), *range(width + more, len(whole.schema)), *range(width, width + more)]
        moved = {old: shown.index(new) for new, old in reversed(list(enumerate(whole.passed)))}
        terms = tuple(remap(term, moved) for term in below.terms)
        return Unnested(_arranged(whole, shown, len(plan.schema)), terms)

    def _union(self, plan: Union) -> Unnested:
        """Branches whose equalities have the same outer sides have columns for the inner ones; others are joined with
        the domain."""
        branches = [self.unnested(each) for each in plan.branches]
        known = [self._bindings(each.terms) for each in branches]
        sides = [[(each.outer, each.is_null_safe, each.inner.data_type) for each in found or ()] for found in known]
        if any(each != sides[0] for each in sides) or not sides[0]:
            wanted = self._columns(term for branch in branches for term in branch.terms)
            branches = [self._joined(branch, wanted)[0] for branch in branches]
            known = [self._bindings(each.terms) for each in branches]
        width = len(plan.schema)
        made = []
        for branch, found in zip(branches, known, strict=True):
            assert found is not None
            source, keys = with_columns(branch.plan, [each.inner for each in found])
            made.append(_arranged(source, [*range(width), *keys], width))
        assert known[0] is not None
        terms = tuple(
            equality(each.outer, InputRef(width + at, each.inner.data_type), is_null_safe=each.is_null_safe)
            for at, each in enumerate(known[0])
        )
        return Unnested(Union(tuple(made)), terms)

    def _join(self, plan: Join) -> Unnested:
        """References may be on both sides of an inner join, and on the left side of others; else both sides have the
        domain."""
        is_left = plan.kind not in (JoinKind.RIGHT, JoinKind.FULL)
        is_above = plan.kind is JoinKind.INNER or not (
            self._is_correlated(plan.right) or any(map(self._refers, plan.terms))
        )
        left, right = self.unnested(plan.left), self.unnested(plan.right)
        if not (is_left and is_above):
            return self._join_of_domain(plan, left, right)
        width, left_width, right_width = len(plan.left.schema), len(left.plan.schema), len(plan.right.schema)
        moved = dict(enumerate(range(width))) | {width + column: left_width + column for column in range(right_width)}
        inner, outer = self._parted(tuple(remap(term, moved) for term in plan.terms))
        shifted = {column: left_width + column for column in range(len(right.plan.schema))}
        terms = (*left.terms, *(remap(term, shifted) for term in right.terms), *outer)
        join = replace(plan, left=left.plan, right=right.plan, on=conjunction(inner) if inner else None)
        if not plan.kind.has_pairs or left_width == width:
            return Unnested(join, terms)
        first = [*range(width), *range(left_width, left_width + right_width)]
        shown = first + [column for column in range(len(join.schema)) if column not in first]
        position = {old: new for new, old in enumerate(shown)}
        return Unnested(_arranged(join, shown, len(first)), tuple(remap(term, position) for term in terms))

    def _join_of_domain(self, plan: Join, left: Unnested, right: Unnested) -> Unnested:
        """Each side that needs it joined with the domain; of both sides only rows of one outer row are pairs."""
        if plan.is_temporal:
            message = "a join FOR SYSTEM_TIME that refers to the query around the subquery is not supported"
            raise BindError(message, **error_span(self._span))
        columns = self._columns((*left.terms, *right.terms, *plan.terms))
        keeps = plan.kind is JoinKind.FULL, plan.kind in (JoinKind.RIGHT, JoinKind.FULL)
        has_left, has_right = not keeps[1] or keeps[0] or bool(left.terms), keeps[1] or bool(right.terms)
        sides, values = [left, right], [dict[OuterRef, Expression](), dict[OuterRef, Expression]()]
        for at, has_domain in enumerate((has_left, has_right)):
            if has_domain:
                sides[at], values[at] = self._joined(sides[at], columns)
        one, other = (each.plan for each in sides)
        widths = len(plan.left.schema), len(one.schema), len(plan.right.schema)
        right_values = {key: remap(each, _shift(other, widths[1])) for key, each in values[1].items()}
        own = values[0] or right_values
        moved = dict(enumerate(range(widths[0]))) | {
            widths[0] + column: widths[1] + column for column in range(widths[2])
        }
        terms = [self.value_of(remap(term, moved), own) for term in plan.terms]
        if values[0] and right_values:
            terms += (equality(values[0][each], right_values[each], is_null_safe=True) for each in columns)
        join = Join(one, other, plan.kind, conjunction(terms) if terms else None)
        shown = [*range(widths[0])]
        if plan.kind.has_pairs:
            shown += range(widths[1], widths[1] + widths[2])
        found = [right_values[each] if keeps[1] else own[each] for each in columns]
        if plan.kind is JoinKind.FULL:
            found = [call("coalesce", [values[0][each], right_values[each]]) for each in columns]
        source, keys = with_columns(join, found)
        width = len(shown)
        terms_above = self._equal(columns, range(width, width + len(keys)))
        return Unnested(_arranged(source, [*shown, *keys], width), terms_above)

    # -- parts -----------------------------------------------------------------------------------------

    def _joined(self, rows: Unnested, wanted: Sequence[OuterRef]) -> tuple[Unnested, dict[OuterRef, Expression]]:
        """The rows for each combination of values of the domain, which its terms and `wanted` are over, and these
        values over them."""
        columns = self._columns((*wanted, *rows.terms))
        domain = self._domain.of(columns)
        width = 0 if rows.plan == ONE_ROW else len(rows.plan.schema)
        values: dict[OuterRef, Expression] = {
            each: InputRef(width + at, each.data_type) for at, each in enumerate(columns)
        }
        terms = [self.value_of(term, values) for term in rows.terms]
        if rows.plan == ONE_ROW:
            joined = where(domain, tuple(terms))
        else:
            joined = Join(rows.plan, domain, JoinKind.INNER, conjunction(terms) if terms else None)
        return Unnested(joined, self._equal(columns, range(width, width + len(columns)))), values

    def _equal(self, columns: Sequence[OuterRef], positions: Iterable[int]) -> tuple[Expression, ...]:
        """That outer columns have the values of columns of a plan."""
        return tuple(
            equality(each, InputRef(position, each.data_type), is_null_safe=True)
            for each, position in zip(columns, positions, strict=True)
        )

    def _bindings(self, terms: Sequence[Expression]) -> list[Binding] | None:
        """The terms as equalities; None if one is something else."""
        found = []
        for term in terms:
            if not is_equality(term):
                return None
            pairs = (term.args, term.args[::-1])
            sides = [each for each in pairs if not input_columns(each[0]) and not self._refers(each[1])]
            if not sides:
                return None
            outer, inner = sides[0]
            found.append(Binding(outer, inner, term.function != "equal"))
        return found

    def _columns(self, expressions: Iterable[Expression]) -> list[OuterRef]:
        """The outer columns that expressions have, each once."""
        own = (node for each in expressions for node in walk(each) if self._is_own(node))
        return list(dict.fromkeys(node for node in own if isinstance(node, OuterRef)))

    def _parted(self, terms: Sequence[Expression]) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """Those without and those with a reference to the outer row."""
        inner = tuple(term for term in terms if not self._refers(term))
        return inner, tuple(term for term in terms if self._refers(term))

    def _is_correlated(self, plan: LogicalPlan) -> bool:
        return any(self._refers(each) for node in nodes(plan) for each in node.evaluated)

    def _refers(self, expression: Expression) -> bool:
        return any(map(self._is_own, walk(expression)))

    def _is_own(self, node: Expression) -> bool:
        return isinstance(node, OuterRef) and node.depth == self._depth


_RULES: dict[type[LogicalPlan], Callable[..., Unnested]] = {
    Share: Unnesting._below,
    Sort: Unnesting._below,
    Filter: Unnesting._filter,
    Project: Unnesting._project,
    Aggregate: Unnesting._aggregate,
    Limit: Unnesting._limit,
    OverWindow: Unnesting._numbered,
    TopN: Unnesting._numbered,
    ProjectSet: Unnesting._project_set,
    Union: Unnesting._union,
    Join: Unnesting._join,
}


def empty_value(each: AggCall) -> Literal:
    """The value of an aggregate of no rows."""
    return Literal(0 if each.kind.counts else None, each.data_type)


def with_columns(
    plan: LogicalPlan, expressions: Sequence[Expression], name: str = "_of_subquery"
) -> tuple[LogicalPlan, tuple[int, ...]]:
    """The plan with a hidden column more for each of `expressions` that is no column of it, called `name`; the
    positions of all."""
    added: list[Expression] = []
    positions = []
    for each in expressions:
        if isinstance(each, InputRef):
            positions.append(each.index)
            continue
        if each not in added:
            added.append(each)
        positions.append(len(plan.schema) + added.index(each))
    if not added:
        return plan, tuple(positions)
    names = list(plan.schema.names)
    for _ in added:
        names.append(hidden_name(name, names))
    columns = input_refs(plan.schema.types)
    concealed = plan.hidden | frozenset(range(len(columns), len(names)))
    return Project(plan, (*columns, *added), tuple(names), concealed), tuple(positions)


def _arranged(plan: LogicalPlan, columns: Sequence[int], width: int) -> LogicalPlan:
    """The columns of `plan` in another order, those from `width` on hidden; a column may come twice."""
    found = only(plan, columns)
    hidden = found.hidden | frozenset(range(width, len(columns)))
    if found.hidden == hidden:
        return found
    return Project(found, input_refs(found.schema.types), found.schema.names, hidden)


def _shift(plan: LogicalPlan, by: int) -> dict[int, int]:
    return {column: by + column for column in range(len(plan.schema))}


def _inner_columns(terms: Sequence[Expression]) -> list[int]:
    return sorted(frozenset().union(*map(input_columns, terms)))
