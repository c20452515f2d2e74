"""Executions: statements of a session with parameters, and those that PREPARE has given a name.

Parameters are written ?, $1 or :name in a query or data change, and their values are a sequence or a mapping of names.
A value has the type that it would have as a literal, and takes its place as a value, never as text. How a statement is
executed is kept for the next one of the same text, see `statement_cache`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from relational.errors import BindError, NotFound, SourceTextError
from relational.expr.bind import convert
from relational.expr.expression import Literal
from relational.expr.parameters import ParameterError, has_parameters, parameter
from relational.plan.logical import LogicalPlan
from relational.relation import Relation
from relational.sql import statement as bound
from relational.sql.constants import lifted
from relational.sql.parameters import Given, check_given
from relational.types.schema import Schema
from stream.errors import InvalidStatement, StatementError
from stream.session.combined_changes import combined
from stream.session.queries import total
from stream.session.statement_cache import CachedStatement, StatementCache, parts_of
from stream.session.transaction import WRITING, kind_of
from stream.session.variables import Names, keeping_frames

if TYPE_CHECKING:
    from stream.serving import Host
    from stream.session.queries import PlannedQuery, SessionQueries
    from stream.session.transaction import Transaction

BATCH_ROWS = 1_024
"""Executions of one statement that are sent together."""
MOST_PREPARED = 1_024
"""Statements that have a name at the same time."""


class PreparedRelation(Relation):
    """A query that is planned already: its rows are read by this plan with `values`, which were checked, as its
    parameters. `bind()` is the statement with the values as constants, which is bound only if another relation is built
    over this one."""

    _query: tuple[SessionQueries, PlannedQuery, Sequence[Literal]]
    _bind: Callable[[], bound.Statement]

    def __init__(
        self,
        queries: SessionQueries,
        planned: PlannedQuery,
        values: Sequence[Literal],
        bind: Callable[[], bound.Statement],
    ) -> None:
        self.__dict__.update(runner=queries, _query=(queries, planned, values), _bind=bind)

    @cached_property
    def _statement(self) -> bound.Select:
        statement = self._bind()
        assert isinstance(statement, bound.Select), statement
        return statement

    @property
    def plan(self) -> LogicalPlan:  # type: ignore[override]
        return self._statement.plan

    @property
    def views(self) -> frozenset[int]:  # type: ignore[override]
        return self._statement.views

    @property
    def schema(self) -> Schema:
        plan = self._query[1].source
        return plan.schema.project(plan.visible)

    def to_arrow(self) -> pa.Table:
        queries, planned, values = self._query
        return queries.rows_of(queries.current(planned), values)


class Executions:
    """Thread safe. `settings()`: those of the session that the meaning of a statement depends on. `run(statement)`
    executes one that is not prepared; `changed(rows)`: a data change has affected so many."""

    def __init__(
        self,
        host: Host,
        queries: SessionQueries,
        now: Callable[[], datetime],
        settings: Callable[[], Hashable],
        transaction: Transaction,
        run: Callable[[bound.Statement], Any],
        changed: Callable[[int], int],
    ) -> None:
        self._queries, self._transaction = queries, transaction
        self._run, self._changed = run, changed
        self.cache = StatementCache(host, now, settings)
        self._lock = threading.Lock()
        self._prepared: dict[str, bound.Prepare] = {}

    def query(self, text: str, given: Given = (), names: Names = None) -> pa.Table:
        """The rows of one SELECT. `names`: the variables of the program. InvalidStatement for any other statement."""
        if type(given) is not tuple:
            check_given(given)
        simple = None if len(given) or self.cache.has(text) else lifted(text)
        if simple is not None:
            with suppress(SourceTextError):  # whose position is that in the text as it was given
                return self._query(*simple, names)
        return self._query(text, given, names)

    def _query(self, text: str, given: Given, names: Names) -> pa.Table:
        found, values = self.cache.find(text, given, names)
        if not isinstance(found.statement, bound.Select):
            kind = kind_of(found.statement)
            raise InvalidStatement("", f"query() answers queries, and this is {kind}: execute() and sql() take it")
        return self._rows(found, values)

    def run(self, text: str, given: Given = (), names: Names = None) -> Relation | pa.Table | int | None:
        """The lazy relation of one query; rows affected by one data change, or those that its RETURNING gives. None for
        a text without parameters that is neither kept nor will be, and was not executed. `names`: the variables of the
        program."""
        if type(given) is not tuple:
            check_given(given)
        if len(given) or self.cache.has(text):
            return self._run_one(text, given, names)
        simple = lifted(text)
        if simple is not None:
            with suppress(SourceTextError):
                return self._run_one(*simple, names)
        return self._run_one(text, given, names) if self.cache.may_have(text) else None

    def _run_one(self, text: str, given: Given, names: Names) -> Relation | pa.Table | int:
        found, values = self.cache.find(text, given, names)
        self._transaction.check(found.statement)
        if _is_bound_by_value(found.statement):
            return cast("pa.Table | int", self._run(self.cache.by_value(text, given, found)))
        if not isinstance(found.statement, bound.Select):
            return self._change(found, values)
        is_bound = not (found.names or found.reads_time)

        def bind() -> bound.Statement:
            return found.statement if is_bound else self.cache.by_value(text, given, found)

        if not found.reads_time and found.variables is None:
            return PreparedRelation(self._queries, self._checked(found, values), values, bind)
        statement = bind()
        assert isinstance(statement, bound.Select)
        return Relation(keeping_frames(statement.plan), self._queries, statement.views)

    def _checked(self, found: CachedStatement, values: Sequence[Literal]) -> PlannedQuery:
        """The plan of a query. BindError for a value that does not fit into it."""
        assert found.planned is not None
        try:
            found.planned.query.check(values)
        except ParameterError as error:
            raise found.located(error) from error
        return found.planned

    def run_many(self, text: str, rows: Iterable[Given]) -> int:
        """Rows affected by a data change that is executed with the values of each of `rows`, in order."""
        affected: list[int] = []
        batch: list[Sequence[Literal]] = []
        current: CachedStatement | None = None
        for given in rows:
            if type(given) is not tuple:
                check_given(given)
            found, values = self.cache.find(text, given)
            self._transaction.check(found.statement)
            if isinstance(found.statement, WRITING) and found.statement.returning is not None:
                reason = "executemany() gives the number of rows: leave RETURNING out, or use sql() for each row"
                raise InvalidStatement("", reason)
            if _is_bound_by_value(found.statement):  # so is every execution of this text
                affected.append(int(self._run(self.cache.by_value(text, given, found))))
                continue
            if current is not None and (found is not current or len(batch) == BATCH_ROWS):
                affected.append(self._change_many(current, batch))
                batch = []
            current = found
            batch.append(values)
        if current is not None:
            affected.append(self._change_many(current, batch))
        return total(affected)

    def _change_many(self, found: CachedStatement, many: Sequence[Sequence[Literal]]) -> int:
        """Rows affected by one statement with several values: inserted rows are one statement, other changes are sent
        one after the other without waiting."""
        statement = found.statement
        if isinstance(statement, bound.Insert):
            assert found.planned is not None
            rows = found.planned.query.rows_of_many(many)
            if rows is not None:
                return self._changed(self._queries.insert_rows(statement.table, rows))
            return total(self._insert(found, values) for values in many)
        if not isinstance(statement, bound.Update | bound.Delete):
            kind = kind_of(statement)
            raise InvalidStatement("", f"executemany() takes INSERT, UPDATE or DELETE, and this is {kind}")
        parts = combined(statement, many)
        return self._changed(total(self._change_part(found, change, part) for change, part in parts))

    def _change_part(
        self, found: CachedStatement, change: bound.Update | bound.Delete | None, part: Sequence[Sequence[Literal]]
    ) -> int:
        """Executions that `change` does together, unless one of them fails."""
        if change is not None:
            with suppress(StatementError):
                return self._queries.change_many(change.table, [parts_of(change)])
        assert isinstance(found.statement, bound.Update | bound.Delete)
        return self._queries.change_many(found.statement.table, [found.change_of(values) for values in part])

    def prepare(self, statement: bound.Prepare) -> None:
        """Gives a statement a name. InvalidStatement if it is taken."""
        with self._lock:
            if statement.name in self._prepared:
                raise InvalidStatement(statement.name, "a statement of this name is prepared: DEALLOCATE it first")
            if len(self._prepared) == MOST_PREPARED:
                raise InvalidStatement(statement.name, f"{MOST_PREPARED} statements are prepared: DEALLOCATE some")
            self._prepared[statement.name] = statement

    def execute(self, statement: bound.Execute) -> pa.Table | int:
        """The rows of a prepared query, or the rows that a data change affected. NotFound, BindError."""
        with self._lock:
            prepared = self._prepared.get(statement.name)
        if prepared is None:
            raise NotFound(f"no statement {statement.name!r} is prepared", name=statement.name)
        given = [_converted(number, value, prepared) for number, value in enumerate(statement.values)]
        found, values = self.cache.find(prepared.text, given)
        self._transaction.check(found.statement)
        if _is_bound_by_value(found.statement):
            return cast("pa.Table | int", self._run(self.cache.by_value(prepared.text, given, found)))
        return self._rows(found, values) if isinstance(found.statement, bound.Select) else self._change(found, values)

    def deallocate(self, statement: bound.Deallocate) -> None:
        """Forgets one or all prepared statements. NotFound."""
        with self._lock:
            if statement.name is None:
                self._prepared.clear()
            elif self._prepared.pop(statement.name, None) is None:
                raise NotFound(f"no statement {statement.name!r} is prepared", name=statement.name)

    def _rows(self, found: CachedStatement, values: Sequence[Literal]) -> pa.Table:
        assert found.planned is not None
        try:
            return self._queries.rows_of(found.planned, values)
        except ParameterError as error:
            raise found.located(error) from error

    def _change(self, found: CachedStatement, values: Sequence[Literal]) -> int | pa.Table:
        statement = found.statement
        if isinstance(statement, bound.Insert):
            if statement.returning is None:
                return self._insert(found, values)
            assert found.planned is not None
            try:
                rows = self._queries.returned_by_insert(statement.table, found.planned, statement.returning, values)
            except ParameterError as error:
                raise found.located(error) from error
        else:
            assert isinstance(statement, bound.Update | bound.Delete), statement
            change = found.change_of(values)
            if statement.returning is None:
                return self._changed(self._queries.change_many(statement.table, [change]))
            rows = self._queries.returned_by_change(statement.table, change, None, statement.returning)
        self._changed(rows.num_rows)
        return rows

    def _insert(self, found: CachedStatement, values: Sequence[Literal]) -> int:
        assert found.planned is not None and isinstance(found.statement, bound.Insert)
        try:
            return self._changed(self._queries.insert_rows_of(found.statement.table, found.planned, values))
        except ParameterError as error:
            raise found.located(error) from error


def _is_bound_by_value(statement: bound.Statement) -> bool:
    """Whether it is a data change whose rows a query selects, with the values of that execution, or whose RETURNING has
    parameters."""
    if not isinstance(statement, WRITING):
        return False
    if statement.returning is not None and any(map(has_parameters, statement.returning.expressions)):
        return True
    return not isinstance(statement, bound.Insert) and statement.keys is not None


def _converted(number: int, value: object, prepared: bound.Prepare) -> object:
    """A value of EXECUTE in the type that PREPARE names for it, if it names one."""
    if number >= len(prepared.types):
        return value
    try:
        found = convert(parameter(value), prepared.types[number])
    except BindError as error:
        raise BindError(f"parameter {number + 1} of {prepared.name}: {error.message}") from error
    return found.value if isinstance(found, Literal) else value
