"""Set-returning functions of a SELECT list, and of FROM, as ProjectSet nodes.

Those of one list give their rows side by side: as many as the longest one has, and NULL for the others. A list has its
rows after aggregates and window functions, and before DISTINCT, ORDER BY and LIMIT. One in GROUP BY comes before the
aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence

from relational.errors import BindError
from relational.expr.bind import error_span, set_call
from relational.expr.expression import Expression, InputRef, SetValue, input_refs, remap, transform, walk
from relational.expr.unbound import TextSpan, UnboundSetCall
from relational.plan.logical import Filter, LogicalPlan, Project, ProjectSet, Values, only
from relational.types.schema import Schema

ONE_ROW = Values(Schema(), ((),))
"""A row without columns."""


class SetFunctions:
    """Those of one SELECT list. `freeze` ends the binding of further ones: what stands for those equals nothing."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, Expression]] = []
        self._is_frozen = False

    def __call__(self, term: UnboundSetCall, args: Sequence[Expression]) -> Expression:
        """What stands for the value of a function in a row. BindError."""
        _check_args(args, term.span)
        bound = set_call(term.function, args, term.span, term.definition)
        assert bound.data_type.element is not None
        call = term.function, bound
        if call not in self._calls:
            if self._is_frozen:
                return SetValue(-1, bound.data_type.element)
            self._calls.append(call)
        return SetValue(self._calls.index(call), bound.data_type.element)

    def freeze(self) -> bool:
        """Whether there are functions."""
        self._is_frozen = True
        return bool(self._calls)

    def joined(self, plan: LogicalPlan, bound: Sequence[Expression]) -> tuple[LogicalPlan, list[Expression]]:
        """The rows of the functions beside those of `plan`, and `bound` over them."""
        if not self._calls:
            return plan, list(bound)
        width = len(plan.schema)
        names, functions = zip(*self._calls, strict=True)
        whole = ProjectSet(plan, tuple(range(width)), functions, names)

        def replaced(node: Expression) -> Expression:
            return InputRef(width + node.number, node.data_type) if isinstance(node, SetValue) else node

        return whole, [transform(each, replaced) for each in bound]


def _check_args(args: Sequence[Expression], span: TextSpan | None) -> None:
    for part in (node for arg in args for node in walk(arg)):
        if isinstance(part, SetValue):
            message = "a function that gives rows within another one is not supported: write the inner one in FROM"
            raise BindError(message, **error_span(span))


def columns_of(
    plan: LogicalPlan, calls: Sequence[tuple[str, Expression]], *, is_outer: bool = False
) -> ProjectSet:
    """The rows of the calls of a FROM, each with its name, beside all columns of `plan`."""
    names, functions = zip(*calls, strict=True)
    return ProjectSet(plan, tuple(range(len(plan.schema))), functions, names, is_outer)


def rows_beside(plan: LogicalPlan, base: LogicalPlan) -> LogicalPlan | None:
    """The columns of `plan`, then those of `base`, for each pair of rows, if one of them has only rows of functions,
    or one row: these come beside the rows of the other one. None for other plans."""
    whole = _over(base, plan)
    if whole is not None:
        return whole
    whole, width = _over(plan, base), len(base.schema)
    return None if whole is None else only(whole, [*range(width, len(whole.schema)), *range(width)])


def _over(plan: LogicalPlan, base: LogicalPlan) -> LogicalPlan | None:
    """`plan` over `base` instead of one row, with all columns of `base` before its own."""
    if plan == ONE_ROW:
        return base
    if not isinstance(plan, ProjectSet | Project | Filter):
        return None
    child = _over(plan.input, base)
    if child is None:
        return None
    width, own = len(base.schema), len(plan.input.schema)
    moved = {column: width + column for column in range(own)}
    if isinstance(plan, Filter):
        return Filter(child, remap(plan.predicate, moved))
    if isinstance(plan, Project):
        columns = input_refs(base.schema.types)
        concealed = base.hidden | {width + column for column in plan.concealed}
        names = (*base.schema.names, *plan.names)
        return Project(child, (*columns, *(remap(each, moved) for each in plan.expressions)), names, concealed)
    passed = (*range(width), *(width + column for column in plan.passed))
    return ProjectSet(child, passed, tuple(remap(each, moved) for each in plan.functions), plan.names, plan.is_outer)
