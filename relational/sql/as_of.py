"""FOR SYSTEM_TIME AS OF: a table or view as it was at an epoch or a time, in queries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sqlglot import exp

from hummock.epoch import MAX_EPOCH, SPILL_MASK, from_unix_ms, pure_epoch
from hummock.errors import InvalidEpoch
from relational.catalog.changes import changed_after
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, convert, error_span
from relational.expr.eval import constant_value
from relational.expr.expression import Expression, is_constant
from relational.expr.parameters import has_parameters
from relational.expr.unbound import TextSpan
from relational.plan.descent import transformed
from relational.plan.logical import LogicalPlan, Scan, nodes
from relational.sql.expressions import Translator
from relational.types.data_type import DataType, TypeKind
from relational.types.schema import Schema

_WANTED = "FOR SYSTEM_TIME AS OF is followed by an epoch, a time such as '2025-01-31 08:00:00+00', or now() - interval"
_INTEGERS = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)


def is_proctime(version: exp.Expr | None) -> bool:
    """Whether this is FOR SYSTEM_TIME AS OF PROCTIME(), which a temporal join has."""
    time = None if version is None else version.args.get("expression")
    return isinstance(time, exp.Anonymous) and time.name.lower() == "proctime"


def epoch_of(version: exp.Version, translate: Translator) -> int:
    """What FOR SYSTEM_TIME AS OF says: a number is a pure epoch; of a time, which has spill bits, the last committed
    epoch that began by then is meant. BindError."""
    span = translate.span(version.expression) or translate.span(version)
    refusal = "a view follows its tables, or joins one AS OF PROCTIME(), and is of no time of its own"
    translate.check_momentary(refusal, span)
    if version.args.get("kind") != "AS OF":
        raise BindError(_WANTED, **error_span(span))
    bound = ExprBinder(Scope(Schema())).bind(translate.term(version.expression))
    if not is_constant(bound) or has_parameters(bound):  # a constant that is bound by value is one
        raise BindError(_WANTED, **error_span(span))
    if bound.data_type.kind in _INTEGERS or (bound.data_type.is_numeric and bound.data_type.scale == 0):
        return _of_number(constant_value(bound), span)
    return _of_time(bound, span)


def _of_number(value: object, span: TextSpan | None) -> int:
    number = -1 if value is None else int(value)  # type: ignore[call-overload]
    if not SPILL_MASK < number <= MAX_EPOCH:
        raise BindError("this is no epoch, as flush() and committed_epoch give it", **error_span(span))
    return pure_epoch(number)


def _of_time(bound: Expression, span: TextSpan | None) -> int:
    try:
        value = constant_value(convert(bound, DataType.TIMESTAMPTZ))
    except BindError as error:
        raise BindError(_WANTED, **error_span(span)) from error
    if not isinstance(value, datetime):
        raise BindError(_WANTED, **error_span(span))
    since = value.replace(tzinfo=value.tzinfo or UTC) - datetime.fromtimestamp(0, UTC)
    try:
        began = from_unix_ms(since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000)
    except InvalidEpoch as error:
        raise BindError(f"{error.reason}, when there were no epochs", **error_span(span)) from error
    return began | SPILL_MASK


def at_epoch(
    plan: LogicalPlan, epoch: int, named: int, known: CatalogSnapshot, span: TextSpan | None
) -> LogicalPlan:
    """The rows that a table, or the view `named` (id) with this plan, had at `epoch`. BindError if a DDL after it has
    changed one of them [R59]."""
    scans = [node.table.id for node in nodes(plan) if isinstance(node, Scan)]
    reason = changed_after(epoch, [named, *scans], known)
    if reason is not None:
        raise BindError(reason, **error_span(span))
    return transformed(plan, lambda node: replace(node, epoch=epoch) if isinstance(node, Scan) else node)

