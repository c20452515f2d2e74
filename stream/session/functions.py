"""User functions of a session through the fluent API: their drafts, and their handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import ObjectName
from relational.errors import BindError, NotFound
from relational.expr.unbound import UnboundAggregate, UnboundCall, UnboundSetCall, as_unbound
from relational.sql.ddl.create_function import check_definition, row_type
from relational.types import DataType, Field
from relational.udf.function import FunctionKind, UserFunction, Volatility
from relational.udf.source import source_of
from stream.session.statements import data_type

if TYPE_CHECKING:
    from stream.playground import Playground

Types: TypeAlias = "Mapping[str, str | DataType] | Sequence[str | DataType]"


class Function:
    """One version of a user function; called with expressions or plain values it makes an expression: of a table
    function one that gives rows, of an aggregate one of a group."""

    def __init__(self, definition: UserFunction) -> None:
        self.definition = definition

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def version(self) -> int:
        """From 1, one more with each replacement."""
        return self.definition.version

    def __call__(self, *args: object) -> UnboundCall | UnboundAggregate:
        terms = tuple(map(as_unbound, args))
        if self.definition.kind is FunctionKind.AGGREGATE:
            first = terms[0] if terms else None
            return UnboundAggregate(self.name, first, more=terms[1:], definition=self.definition)
        kind = UnboundSetCall if self.definition.kind is FunctionKind.TABLE else UnboundCall
        return kind(self.name, terms, definition=self.definition)

    def __repr__(self) -> str:
        return f"<{self.definition.kind} {self.name}{self.definition.signature}, version {self.version}>"


class SessionFunctions:
    """Thread safe; names are written as in SQL."""

    def __init__(self, playground: Playground) -> None:
        self._catalog, self._ddl = playground.catalog, playground.meta.ddl

    def create(
        self,
        name: str,
        function: Callable[..., Any] | str,
        arguments: Types,
        returns: str | DataType | Mapping[str, str | DataType],
        *,
        is_aggregate: bool,
        volatility: str,
        strict: bool,
        row_wise: bool,
        handler: str | None,
        replaces: bool,
    ) -> Function:
        """See `Session.create_function`."""
        whole = ObjectName.parse(name)
        schema = self._catalog.resolve_schema(whole.schema, whole.database)
        draft = function_draft(whole.name, function, arguments, returns, is_aggregate=is_aggregate,
                               volatility=volatility, strict=strict, row_wise=row_wise, handler=handler)
        return Function(self._ddl.create_function(FunctionCatalog(draft, schema.id), replaces=replaces).function)

    def get(self, name: str) -> Function:
        """See `Session.function`."""
        found = self._catalog.find_function(ObjectName.parse(name))
        if found is None:
            raise self._missing(name)
        return Function(found.function)

    def drop(self, name: str, *, cascade: bool) -> None:
        """See `Session.drop_function`."""
        whole = ObjectName.parse(name)
        schema = self._catalog.resolve_schema(whole.schema, whole.database)
        found = self._catalog.snapshot.find_function(schema.id, whole.name)
        if found is None:
            raise self._missing(name)
        self._ddl.drop_function(found.id, cascade=cascade)

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"there is no user function {name!r}", name=name)


def function_draft(
    name: str,
    function: Callable[..., Any] | str,
    arguments: Types,
    returns: str | DataType | Mapping[str, str | DataType],
    *,
    is_aggregate: bool,
    volatility: str,
    strict: bool,
    row_wise: bool,
    handler: str | None,
) -> UserFunction:
    """The draft of a function, equal to that of CREATE FUNCTION. BindError."""
    source, defined = (function, name) if isinstance(function, str) else source_of(function)
    kind, column = FunctionKind.AGGREGATE if is_aggregate else FunctionKind.SCALAR, ""
    if isinstance(returns, Mapping):
        if is_aggregate or not returns:
            raise BindError("an aggregate returns one value of each group" if is_aggregate
                            else "a table function returns one column at least")
        kind = FunctionKind.TABLE
        result, column = row_type([Field(each, data_type(of)) for each, of in returns.items()])
    else:
        result = data_type(returns)
    if volatility not in list(Volatility):
        raise BindError(f"volatility is one of {', '.join(Volatility)}, not {volatility!r}")
    pairs = arguments.items() if isinstance(arguments, Mapping) else (("", each) for each in arguments)
    fields = tuple(Field(each, data_type(of)) for each, of in pairs)
    draft = UserFunction(name, fields, result, source, handler or defined, kind, Volatility(volatility), strict,
                         row_wise, column)
    check_definition(draft)
    return draft
