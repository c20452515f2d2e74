"""Set-returning functions in FROM: their calls, and the columns of their rows.

    generate_series (…), unnest (list), string_to_table (…) …     one column, called as the relation
    unnest (list, list …)                                          a column for each list, side by side
    jsonb_each (…)                                                 the fields of a row
    jsonb_to_recordset (…) AS r (a INT, b TEXT)                    the members that the alias names, in its types
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relational.errors import BindError, ParseError
from relational.expr.bind import ExprBinder, call, convert, error_span, set_call
from relational.expr.expression import Expression, InputRef, Literal, input_refs, remap
from relational.expr.functions import ALIASES, SET_FUNCTIONS
from relational.expr.unbound import UnboundSetCall
from relational.plan.logical import LogicalPlan, Project
from relational.plan.set_functions import columns_of
from relational.sql.expressions import Translator
from relational.types.data_type import DataType, TypeKind
from relational.types.schema import Field, Schema
from relational.udf.function import FunctionKind, UserFunction

RECORDS = frozenset(("jsonb_to_recordset", "json_to_recordset"))
ORDINALITY = "ordinality"


def gives_rows(node: exp.Expr, translate: Translator) -> bool:
    """Whether a relation of a FROM is a set-returning function. BindError for a user function that is none."""
    called = node.this if isinstance(node, exp.Table | exp.Lateral) else None
    if not isinstance(called, exp.Anonymous):
        return False
    own = _user_function(node, translate)
    if own is not None:
        if own.kind is not FunctionKind.TABLE:
            message = f"{own.name} is {own.kind.one}: it gives no rows that could be a relation"
            raise BindError(message, **error_span(translate.span(called)))
        return True
    name = called.name.lower()
    return ALIASES.get(name, name) in SET_FUNCTIONS or name in RECORDS


def _user_function(node: exp.Expr, translate: Translator) -> UserFunction | None:
    """The user function that a relation calls, or None."""
    schema = node.args.get("db")
    return translate.function(node.this, *(() if schema is None else (translate.identifier(schema),)))


def defines_columns(node: exp.Expr, translate: Translator) -> bool:
    """Whether the alias of a set-returning function gives its columns their types."""
    return gives_rows(node, translate) and node.this.name.lower() in RECORDS


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of `calls`, each with its name. `columns`: their names, and expressions over the elements of the calls.
    `has_number`: WITH ORDINALITY."""

    calls: tuple[tuple[str, Expression], ...]
    columns: tuple[tuple[str, Expression], ...]
    has_number: bool

    @property
    def schema(self) -> Schema:
        """Of the columns, and of the number of the row."""
        fields = [Field(name, each.data_type) for name, each in self.columns]
        return Schema((*fields, Field(ORDINALITY, DataType.BIGINT)))

    @property
    def hidden(self) -> frozenset[int]:
        return frozenset() if self.has_number else frozenset((len(self.columns),))

    def over(self, plan: LogicalPlan, *, is_outer: bool = False) -> LogicalPlan:
        """The columns and the number of the rows behind those of `plan`. `is_outer`: rows of `plan` without any stay.
        """
        whole, width = columns_of(plan, self.calls, is_outer=is_outer), len(plan.schema)
        shifted = {number: width + number for number in range(len(self.calls))}
        own = input_refs(whole.schema.types)
        made = tuple(remap(each, shifted) for _, each in self.columns)
        if made == own[width:-1]:
            return whole
        names = (*plan.schema.names, *(name for name, _ in self.columns), whole.schema.names[-1])
        concealed = plan.hidden | {len(names) - 1}
        return Project(whole, (*own[:width], *made, own[-1]), names, concealed)


def table_rows(
    node: exp.Table | exp.Lateral, alias: str | None, binder: ExprBinder, translate: Translator
) -> TableRows:
    """The rows of a relation that `gives_rows`, called `alias`; its arguments are bound by `binder`. BindError."""
    called, has_number = node.this, bool(node.args.get("ordinality"))
    name, span = called.name.lower(), translate.span(called)
    own = _user_function(node, translate)
    if own is not None:
        term = translate.user_call(own, called, span)
        assert isinstance(term, UnboundSetCall), term
        bound = set_call(own.name, [binder.bind(each) for each in term.args], span, own)
        return TableRows(((own.name, bound),), _columns_of(own.column or alias or name, _element(0, bound)), has_number)
    name = ALIASES.get(name, name)
    if any(isinstance(each, exp.Kwarg) for each in called.expressions):
        raise ParseError(f"the arguments of {name} have no names", **error_span(span))
    args = [binder.bind(translate.term(each)) for each in called.expressions]
    if name in RECORDS:
        return _records(node, args, has_number, translate)
    if name == "unnest" and len(args) > 1:
        calls = tuple((name, set_call(name, [arg], span)) for arg in args)
        return TableRows(calls, tuple((name, _element(number, each)) for number, (_, each) in enumerate(calls)),
                         has_number)
    bound = set_call(name, args, span)
    return TableRows(((name, bound),), _columns_of(alias or name, _element(0, bound)), has_number)


def _columns_of(name: str, element: InputRef) -> tuple[tuple[str, Expression], ...]:
    """The fields of rows, or values called `name`."""
    if element.data_type.kind is not TypeKind.STRUCT:
        return ((name, element),)
    fields = enumerate(element.data_type.fields, 1)
    return tuple((field.name, call(f"field_{number}", [element])) for number, field in fields)


def _element(number: int, bound: Expression) -> InputRef:
    assert bound.data_type.element is not None
    return InputRef(number, bound.data_type.element)


def _records(
    node: exp.Table | exp.Lateral, args: list[Expression], has_number: bool, translate: Translator
) -> TableRows:
    """A column for each that the alias defines: the member of that name."""
    alias, span = node.args.get("alias"), translate.span(node.this)
    defined = [] if alias is None else alias.args.get("columns") or []
    if not defined or not all(isinstance(each, exp.ColumnDef) for each in defined):
        message = "jsonb_to_recordset needs the columns of its rows: AS name (column type, …)"
        raise BindError(message, **error_span(span))
    bound = set_call("jsonb_array_elements", args, span)
    element = _element(0, bound)
    columns = []
    for each in defined:
        name, data_type = translate.identifier(each.this), translate.data_type(each.args["kind"], translate.span(each))
        function = "json_get" if data_type.kind is TypeKind.JSONB else "json_get_text"
        member = call(function, [element, Literal(name, DataType.VARCHAR)], span)
        columns.append((name, convert(member, data_type, translate.span(each))))
    return TableRows((("jsonb_array_elements", bound),), tuple(columns), has_number)
