"""Replaces a scan whose filter fixes every primary key column by a point get."""

from __future__ import annotations

from decimal import Decimal

from relational.expr.coercion import WIDE, digits
from relational.expr.expression import Call, Expression, InputRef, Literal, conjunction, conjuncts
from relational.plan.logical import Filter, LogicalPlan, PointGet, Scan
from relational.types.data_type import DataType, TypeKind


def use_point_get(plan: LogicalPlan) -> LogicalPlan:
    """The plan with point gets; conditions not implied by the key remain as a filter above."""
    if isinstance(plan, Filter) and isinstance(plan.input, Scan) and plan.input.table.pk:
        return _point_get(plan, plan.input)
    return plan.with_inputs(tuple(map(use_point_get, plan.inputs)))


def _point_get(plan: Filter, scan: Scan) -> LogicalPlan:
    fixed: dict[int, tuple[Literal, Expression]] = {}
    terms = conjuncts(plan.predicate)
    for term in terms:
        found = _fixed_column(term, scan)
        if found is not None:
            fixed.setdefault(found[0], (found[1], term))
    key = scan.table.pk_indices
    if not all(column in fixed for column in key):
        return plan
    get = PointGet(scan.table, scan.columns, tuple(fixed[column][0] for column in key))
    used = [fixed[column][1] for column in key]
    rest = tuple(term for term in terms if not any(term is each for each in used))
    return Filter(get, conjunction(rest)) if rest else get


def _fixed_column(term: Expression, scan: Scan) -> tuple[int, Literal] | None:
    """The table column and constant of `column = constant`; None for any other term."""
    if not isinstance(term, Call) or term.function != "equal":
        return None
    for column, value in (term.args, term.args[::-1]):
        if isinstance(column, InputRef) and isinstance(value, Literal) and value.value is not None:
            exact = _as_type(value, column.data_type)
            return None if exact is None else (scan.columns[column.index], exact)
    return None


def _as_type(value: Literal, data_type: DataType) -> Literal | None:
    """The same constant in the column's own type; None if the column cannot represent it."""
    if value.data_type == data_type:
        return value
    if value.data_type.kind is not TypeKind.NUMERIC or data_type.kind is not TypeKind.NUMERIC:
        return None
    whole, scale = digits(data_type)
    scaled = value.value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    fits = scaled == value.value and scaled.copy_abs() < Decimal(10) ** whole
    return Literal(scaled, data_type) if fits else None
