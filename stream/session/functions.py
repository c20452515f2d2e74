"""User functions of a session through the fluent API: their drafts, and their handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import ObjectName
from relational.errors import BindError, NotFound
from relational.expr.unbound import UnboundAggregate, UnboundCall, UnboundSetCall, as_unbound
from relational.sql.ddl.create_function import check_definition, row_type
from relational.types import DataType, Field
from relational.udf.function import FunctionKind, UserFunction, Volatility
from relational.udf.source import RETRACT, defines, source_of
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

    def create(self, name: str, definition: FunctionDefinition, *, replaces: bool) -> Function:
        """See `Session.create_function`."""
        whole = ObjectName.parse(name)
        schema = self._catalog.resolve_schema(whole.schema, whole.database)
        draft = FunctionCatalog(definition.draft(whole.name), schema.id)
        return Function(self._ddl.create_function(draft, replaces=replaces).function)

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


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """The arguments of `Session.create_function`; those of an aggregate alike."""

    function: Callable[..., Any] | str
    arguments: Types
    returns: str | DataType | Mapping[str, str | DataType]
    volatility: str
    strict: bool
    row_wise: bool
    handler: str | None
    is_aggregate: bool = False
    state: str | DataType | None = None

    def draft(self, name: str) -> UserFunction:
        """The draft of a function, equal to that of CREATE FUNCTION. BindError."""
        source, defined = (self.function, name) if isinstance(self.function, str) else source_of(self.function)
        state = None if self.state is None else data_type(self.state)
        kind, result, column = self._result()
        if self.volatility not in list(Volatility):
            raise BindError(f"volatility is one of {', '.join(Volatility)}, not {self.volatility!r}")
        draft = UserFunction(name, self._fields(), result, source, self.handler or defined, kind,
                             Volatility(self.volatility), self.strict, self.row_wise, column, state,
                             state is not None and defines(source, RETRACT))
        check_definition(draft)
        return draft

    def _fields(self) -> tuple[Field, ...]:
        given = self.arguments
        pairs = given.items() if isinstance(given, Mapping) else (("", each) for each in given)
        return tuple(Field(name, data_type(of)) for name, of in pairs)

    def _result(self) -> tuple[FunctionKind, DataType, str]:
        """Its kind, the type of a value or row, and the name of the only column."""
        returns = self.returns
        if not isinstance(returns, Mapping):
            return FunctionKind.AGGREGATE if self.is_aggregate else FunctionKind.SCALAR, data_type(returns), ""
        if self.is_aggregate:
            raise BindError("an aggregate returns one value of each group")
        if not returns:
            raise BindError("a table function returns one column at least")
        return (FunctionKind.TABLE, *row_type([Field(name, data_type(of)) for name, of in returns.items()]))
