"""The rows of a read: a condition over a table, split into key ranges and a remainder that tasks evaluate.

A condition has the meaning of WHERE in a query: a row for which it is NULL is omitted, and one for which it has no
value (a division by zero) is an EvaluationError of the task. now() is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from hummock.base.key import KeyRange
from relational.catalog.objects import TableCatalog
from relational.errors import ParseError, SourceTextError
from relational.expr.bind import ExprBinder, Scope
from relational.expr.coercion import WIDE, digits
from relational.expr.expression import Call, Cast, Expression, InputRef, Literal, conjunction, conjuncts
from relational.expr.unbound import Name, UnboundCall, UnboundExpr, UnboundLiteral
from relational.plan.logical import Scan
from relational.spark.key_filters import Condition, key_filter
from relational.sql.expressions import Translator
from relational.sql.lexer import statements
from relational.sql.tree import parse
from relational.types.data_type import DataType, TypeKind

FUNCTIONS = {"=": "equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
OPERATORS = {function: operator for operator, function in FUNCTIONS.items()}
MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
Where = str | Iterable[tuple[str, str, object]]


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows in `ranges`, ascending, for which `rest`, over the table's columns, is true; None: all of them."""

    ranges: tuple[KeyRange, ...]
    rest: Expression | None = None


def selection(table: TableCatalog, where: Where | None) -> Selection:
    """Splits `where`: a condition in SQL over the table's columns, or all of (column, one of = < <= > >=, value); None:
    all rows. ParseError and BindError with the span in the text, ValueError for another operator.
    """
    terms = conjuncts_of(table, where)
    conditions = [_key_condition(table, term) for term in terms]
    found = key_filter(table, [each for each in conditions if each is not None])
    rest = [term for term, condition in zip(terms, conditions, strict=True)
            if condition is None or any(condition is each for each in found.rest)]
    return Selection(found.ranges, conjunction(rest) if rest else None)


def conjuncts_of(table: TableCatalog, where: Where | None) -> tuple[Expression, ...]:
    """The terms of `where`, bound to the table; all of them must be true."""
    binder = ExprBinder(Scope(table.schema, Scan(table).hidden, table.name))
    if where is None:
        return ()
    if isinstance(where, str):
        return conjuncts(_bound_text(where, binder))
    return tuple(binder.condition(_compared(Condition(*each)), "WHERE") for each in where)


def _bound_text(text: str, binder: ExprBinder) -> Expression:
    try:
        pieces = list(statements(text))
        if len(pieces) != 1:
            raise ParseError("one condition is expected here, as after WHERE")
        tree = parse(pieces[0])
        return binder.condition(Translator(tree).term(tree.node), "WHERE")
    except SourceTextError as error:
        error.text = text
        raise


def _compared(condition: Condition) -> UnboundExpr:
    value = UnboundLiteral(condition.value)
    return UnboundCall(FUNCTIONS[condition.operator], (Name(condition.column), value))


def _key_condition(table: TableCatalog, term: Expression) -> Condition | None:
    """A comparison of a column with a constant of the column's type, if the term is or equals one; else None."""
    if not isinstance(term, Call) or term.function not in OPERATORS:
        return None
    operator = OPERATORS[term.function]
    for (side, value), how in ((term.args, operator), (term.args[::-1], MIRRORED[operator])):
        column = _widened_column(side)
        if column is not None and isinstance(value, Literal) and value.value is not None:
            return Condition(table.columns[column.index].name, how, _narrowed(value, column.data_type))
    return None


def _widened_column(side: Expression) -> InputRef | None:
    """The column that `side` is, possibly under a cast that preserves order and values."""
    if not isinstance(side, Cast) or not isinstance(side.operand, InputRef):
        return side if isinstance(side, InputRef) else None
    column, to = side.operand, side.data_type
    if column.data_type.is_integer and to.is_integer:
        return column if column.data_type.kind <= to.kind else None
    if not _is_exact(column.data_type) or not _is_exact(to):
        return None
    return column if all(map(int.__le__, digits(column.data_type), digits(to))) else None


def _narrowed(value: Literal, data_type: DataType) -> object:
    """The constant in the column's type, if the column can represent it; else unchanged."""
    if not isinstance(value.value, Decimal):
        return value.value
    scaled = value.value.quantize(Decimal(1).scaleb(-digits(data_type)[1]), context=WIDE)
    if scaled != value.value:
        return value.value
    return int(scaled) if data_type.is_integer else scaled


def _is_exact(data_type: DataType) -> bool:
    return data_type.is_integer or data_type.kind is TypeKind.NUMERIC
