"""StatementCache: bound and planned statements of a session, found again by their text.

The plan of a query or data change depends on its text, the types of its parameters and which of them are NULL, the
values of those that must be constants (LIMIT), the catalog and the settings of the session [R60]. It is bound again
when one of these differs; the least recently used ones are forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from relational.batch.prepared import any_parameters
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import BindError, SourceTextError
from relational.expr.bind import error_span
from relational.expr.expression import NO_TIME, Expression, Literal
from relational.expr.parameters import ParameterError, kinds_of, parameter, separated, with_values
from relational.sql.binder import bind_sql
from relational.sql.context import no_variables
from relational.sql.lexer import statements
from relational.sql.parameters import Given, Parameters, literals_of
from relational.sql.prepare import PREPARABLE
from relational.sql.statement import Delete, Insert, Select, Statement, Update
from stream.session.queries import Change, PlannedQuery, has_external_rows, plan_for
from stream.session.variables import Names, Variables

if TYPE_CHECKING:
    from stream.serving import Host

MOST_STATEMENTS = 1_024
"""Plans that are kept."""
MOST_CHARACTERS = 4 << 20
"""Of the texts of all plans that are kept; a longer text is not."""
LONGEST_TEXT = 64 << 10
MOST_SEEN = 4_096
"""Texts without parameters that were executed once: the second time they are kept."""
TOUCHED_EVERY = 16
"""Of so many statements that are found, one is noted as used last."""
MOST_CONSTANTS = 64
"""Plans of one text that differ in the values of constants, beyond which the text is not kept."""


@dataclass(slots=True)
class CachedStatement:
    """A statement as it was bound for some types of its parameters, whose keys in the given values are `names`."""

    text: str
    names: tuple[str | int, ...]
    statement: Statement
    planned: PlannedQuery | None
    spans: Sequence[tuple[int, int] | None]
    has_parameters: bool
    reads_time: bool
    change: Change | None
    """The data change for any values of `slots`."""
    slots: tuple[Expression, ...]
    variables: Variables | None
    """Those of the program, if it reads some: then it is executed once."""

    def change_of(self, values: Sequence[Literal]) -> Change:
        """The data change with these values; expressions that its executions share, where it can be. BindError at the
        parameter whose value does not fit."""
        if self.change is not None:
            try:
                found = tuple([with_values(slot, values) for slot in self.slots])
            except ParameterError as error:
                raise self.located(error) from error
            if all(isinstance(each, Literal) for each in found):
                return self.change._replace(values=cast("tuple[Literal, ...]", found))
        return parts_of(self.bound(values))

    def bound(self, values: Sequence[Literal]) -> Update | Delete:
        """The data change with these values. BindError at the parameter whose value does not fit."""
        statement = self.statement
        assert isinstance(statement, Update | Delete), statement
        if not self.has_parameters:
            return statement
        try:
            condition = statement.predicate
            predicate = None if condition is None else with_values(condition, values)
            if isinstance(statement, Delete):
                return replace(statement, predicate=predicate)
            changed = tuple([(index, with_values(value, values)) for index, value in statement.assignments])
            return replace(statement, assignments=changed, predicate=predicate)
        except ParameterError as error:
            raise self.located(error) from error

    def located(self, error: ParameterError) -> BindError:
        """The error of a value at its parameter in the text."""
        span = self.spans[error.number - 1] if error.number else None
        found = BindError(f"{self._shown(error.number)}: {error.message}", **error_span(span))
        found.text = self.text
        return found

    def _shown(self, number: int) -> str:
        name = self.names[number - 1] if number else 0
        return f"parameter :{name}" if isinstance(name, str) else f"parameter {number}"


@dataclass(slots=True)
class _Text:
    """What is known of a text: the keys of its parameters, and which are constants; None: those are not known yet."""

    names: tuple[str | int, ...] = ()
    constants: tuple[int, ...] = ()
    keys: set[Hashable] = field(default_factory=set)


class StatementCache:
    """Thread safe. `now()`: the time of a statement. `settings()`: all settings of the session that binding depends on.
    """

    def __init__(
        self,
        host: Host,
        now: Callable[[], datetime],
        settings: Callable[[], Hashable],
    ) -> None:
        self._host, self._catalog = host, host.catalog
        self._now, self._settings = now, settings
        self._lock = threading.Lock()
        self._texts: dict[str, _Text] = {}
        self._found: OrderedDict[Hashable, CachedStatement] = OrderedDict()
        self._known: CatalogSnapshot | None = None  # the catalog that all of them were bound to
        self._seen: OrderedDict[int, None] = OrderedDict()  # hashes of texts that may be kept next time
        self._characters = 0
        self.hits = self.misses = 0

    def find(self, text: str, given: Given = (), names: Names = None) -> tuple[CachedStatement, list[Literal]]:
        """The statement of a text that consists of one query or data change, and the values of its parameters by
        number, that of 0 the time. `names`: the variables of the program. ParseError or BindError as `bind_sql`, also
        for missing and left over values."""
        known = self._catalog.snapshot
        shape = self._texts.get(text)
        if shape is not None and known is self._known and len(given) == len(shape.names):
            try:
                values = literals_of(given, shape.names)
            except (LookupError, BindError):
                return self._bound(text, given, known, names)  # which names the value
            key = self._key(text, shape, values)
            found = self._found.get(key)
            if found is not None:
                self.hits += 1
                if self.hits % TOUCHED_EVERY == 0:
                    with self._lock:
                        if key in self._found:
                            self._found.move_to_end(key)
                return found, [self._time(found), *values]
        return self._bound(text, given, known, names)

    def by_value(self, text: str, given: Given, found: CachedStatement) -> Statement:
        """The statement that was found, with the values of its parameters as constants."""
        return self._bind(text, given, found.variables, is_by_value=True)[0]

    def _key(self, text: str, shape: _Text, values: Sequence[Literal]) -> Hashable:
        constants = tuple([values[number] for number in shape.constants])
        return text, kinds_of(values), constants, self._settings()

    def _bound(
        self, text: str, given: Given, known: CatalogSnapshot, names: Names
    ) -> tuple[CachedStatement, list[Literal]]:
        """Binds the statement, and keeps it."""
        self.misses += 1
        variables = Variables(self._host, names)
        try:
            statement, parameters = self._bind(text, given, variables, is_by_value=False)
        except SourceTextError:  # a function may take constants only, and a time of the past is one
            statement, parameters = self._bind(text, given, variables, is_by_value=True)
        values = literals_of(given, parameters.names)
        found = self._planned(text, statement, parameters, known, variables if variables.are_read else None)
        self._keep(text, found, parameters, values, known)
        return found, [self._time(found), *values]

    def _time(self, found: CachedStatement) -> Literal:
        """The time of an execution, if it is needed."""
        return parameter(self._now()) if found.reads_time else NO_TIME

    def _bind(
        self, text: str, given: Given, variables: Variables | None, *, is_by_value: bool
    ) -> tuple[Statement, Parameters]:
        if len(list(statements(text))) != 1:
            raise BindError("a text of one query or data change is expected here")
        parameters = Parameters(given, is_by_value=is_by_value)
        (statement,) = bind_sql(text, self._catalog, self._now(), parameters, variables=variables or no_variables)
        parameters.finish()
        return statement, parameters

    def _planned(
        self,
        text: str,
        statement: Statement,
        parameters: Parameters,
        known: CatalogSnapshot,
        variables: Variables | None,
    ) -> CachedStatement:
        planned, has_parameters = None, False
        change: Change | None = None
        slots: tuple[Expression, ...] = ()
        if isinstance(statement, Select):
            planned = plan_for(statement.plan, statement.plan.visible, known, self._host)
        elif isinstance(statement, Insert):
            planned = plan_for(statement.query, range(len(statement.query.schema)), None, self._host)
        elif isinstance(statement, Update | Delete):
            parts = (statement.predicate, *(statement.assignments if isinstance(statement, Update) else ()))
            has_parameters = any_parameters(parts)
            if has_parameters:
                change, slots = _separated(parts_of(statement))
        return CachedStatement(
            text, parameters.names, statement, planned, parameters.spans, has_parameters, parameters.reads_time,
            change, slots, variables,
        )

    def _keep(
        self,
        text: str,
        found: CachedStatement,
        parameters: Parameters,
        values: Sequence[Literal],
        known: CatalogSnapshot,
    ) -> None:
        is_of_now = (parameters.is_by_value and parameters.reads_time) or _reads_files(found.statement)
        if len(text) > LONGEST_TEXT or known is not self._catalog.snapshot or is_of_now or found.variables is not None:
            return
        with self._lock:
            if known is not self._known:
                self._texts, self._known, self._characters = {}, known, 0
                self._found.clear()
            shape = self._texts.setdefault(text, _Text())
            constants = tuple(sorted({*shape.constants, *parameters.constants}))
            if shape.names != parameters.names or shape.constants != constants:
                self._forget(shape.keys)
                shape.names, shape.constants = parameters.names, constants
            if constants and len(shape.keys) >= MOST_CONSTANTS:
                self._forget(shape.keys)
            self._texts[text] = shape
            key = self._key(text, shape, values)
            if key not in self._found:
                shape.keys.add(key)
                self._characters += len(text)
            self._found[key] = found
            while len(self._found) > MOST_STATEMENTS or self._characters > MOST_CHARACTERS:
                self._forget({next(iter(self._found))})

    def _forget(self, keys: set[Hashable]) -> None:
        for key in tuple(keys):
            gone = self._found.pop(key, None)
            if gone is None:
                continue
            self._characters -= len(gone.text)
            shape = self._texts[gone.text]
            shape.keys.discard(key)
            if not shape.keys:
                del self._texts[gone.text]

    def has(self, text: str) -> bool:
        """Whether plans of this very text are kept."""
        return text in self._texts

    def may_have(self, text: str) -> bool:
        """Whether a text without parameters is kept, or will be as it comes a second time: that of one query or data
        change."""
        if text in self._texts:
            return True
        if len(text) > LONGEST_TEXT:
            return False
        number = hash(text)
        with self._lock:
            was_seen = self._seen.pop(number, 0) is None
            self._seen[number] = None
            if len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
        return was_seen and is_cacheable(text)


def _reads_files(statement: Statement) -> bool:
    """Whether the columns of a query are those that files had when it was bound."""
    query = statement.plan if isinstance(statement, Select) else getattr(statement, "query", None)
    return query is not None and has_external_rows(query)


def parts_of(statement: Update | Delete) -> Change:
    """A data change as it is sent to its table."""
    return Change(statement.assignments if isinstance(statement, Update) else None, statement.predicate)


def _separated(change: Change) -> tuple[Change, tuple[Expression, ...]]:
    """The change over parameters of its own, and what these stand for."""
    columns = [column for column, _ in change.assignments or ()]
    parts = [value for _, value in change.assignments or ()]
    if change.predicate is not None:
        parts.append(change.predicate)
    found, slots = separated(parts)
    predicate = None if change.predicate is None else found[-1]
    assignments = None if change.assignments is None else tuple(zip(columns, found, strict=False))
    return Change(assignments, predicate), slots


def is_cacheable(text: str) -> bool:
    """Whether a text is one query or data change."""
    pieces = []
    for piece in statements(text):
        pieces.append(piece)
        if len(pieces) > 1:
            return False
    if not pieces:
        return False
    words = pieces[0].words(1)
    return words[0] in PREPARABLE if words else pieces[0].source.lstrip().startswith("(")
