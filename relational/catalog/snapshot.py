"""CatalogSnapshot: the contents of the catalog at one version. Immutable; any thread may read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import TypeVar

from relational.catalog.changes import ObjectChange, read_changes
from relational.catalog.functions import FunctionCatalog
from relational.catalog.job_failure import JobFailure
from relational.catalog.job_record import JobRecord
from relational.catalog.names import DEV, PUBLIC, DatabaseCatalog, ObjectName, SchemaCatalog
from relational.catalog.objects import TableCatalog, TableKind, offset_table_name
from relational.catalog.records import (
    CREATING_PREFIX,
    DATABASE_PREFIX,
    FAILED_PREFIX,
    FUNCTION_PREFIX,
    LOADED_PREFIX,
    SCHEMA_PREFIX,
    TABLE_PREFIX,
    VERSION,
    job_key,
)
from relational.errors import NotFound

Catalog = TypeVar("Catalog", TableCatalog, SchemaCatalog, DatabaseCatalog, FunctionCatalog)


@dataclass(frozen=True)
class CatalogSnapshot:
    """All objects by id, after `version` DDLs; `rows` are the bytes that they were parsed from, by meta key."""

    version: int = 0
    tables: Mapping[int, TableCatalog] = field(default_factory=dict)
    schemas: Mapping[int, SchemaCatalog] = field(default_factory=lambda: {PUBLIC.id: PUBLIC})
    databases: Mapping[int, DatabaseCatalog] = field(default_factory=lambda: {DEV.id: DEV})
    rows: Mapping[str, bytes] = field(default_factory=dict)
    functions: Mapping[int, FunctionCatalog] = field(default_factory=dict)

    @classmethod
    def read(cls, rows: Mapping[str, bytes], known: CatalogSnapshot) -> CatalogSnapshot:
        """The snapshot of all catalog rows; objects whose rows are unchanged since `known` are not parsed again."""

        def parsed(
            prefix: str, objects: Mapping[int, Catalog], parse: Callable[[Mapping], Catalog]
        ) -> dict[int, Catalog]:
            """The objects under a key prefix, by id."""
            keys = {int(key[len(prefix) :]): key for key in rows if key.startswith(prefix)}
            return {
                number: objects[number]
                if number in objects and known.rows.get(key) == rows[key]
                else parse(json.loads(rows[key]))
                for number, key in keys.items()
            }

        return cls(
            int(rows.get(VERSION, b"0")),
            parsed(TABLE_PREFIX, known.tables, TableCatalog.from_json),
            {PUBLIC.id: PUBLIC, **parsed(SCHEMA_PREFIX, known.schemas, SchemaCatalog.from_json)},
            {DEV.id: DEV, **parsed(DATABASE_PREFIX, known.databases, DatabaseCatalog.from_json)},
            rows,
            parsed(FUNCTION_PREFIX, known.functions, FunctionCatalog.from_json),
        )

    @cached_property
    def loaded(self) -> dict[int, tuple[int, ...]]:
        """The tables that a load filled for an object that does not exist yet, by the object's id."""
        keys = [key for key in self.rows if key.startswith(LOADED_PREFIX)]
        return {int(key[len(LOADED_PREFIX) :]): tuple(json.loads(self.rows[key])) for key in keys}

    @cached_property
    def state_rows(self) -> dict[str, bytes]:
        """The rows of jobs that were set aside or are being created, by meta key: they change without a DDL."""
        return {key: row for key, row in self.rows.items() if key.startswith((FAILED_PREFIX, CREATING_PREFIX))}

    @cached_property
    def failed(self) -> dict[int, JobFailure]:
        """The jobs set aside, by id."""
        found = (JobFailure.from_json(json.loads(row)) for key, row in self.state_rows.items()
                 if key.startswith(FAILED_PREFIX))
        return {failure.job_id: failure for failure in found if failure.job_id in self.tables}

    @cached_property
    def creating(self) -> frozenset[int]:
        """The jobs that have not read all existing rows of the tables that they read, by id."""
        keys = (key for key in self.state_rows if key.startswith(CREATING_PREFIX))
        return frozenset(int(key[len(CREATING_PREFIX) :]) for key in keys) & self.tables.keys()

    @cached_property
    def changed(self) -> dict[int, ObjectChange]:
        """The last change of each object, by id, as far as it is recorded."""
        return read_changes(self.rows)

    def job_record(self, job_id: int) -> JobRecord | None:
        """How a job runs; None for a table, and for a job of an older release."""
        row = self.rows.get(job_key(job_id))
        return None if row is None else JobRecord.from_json(json.loads(row))

    # ---- by name -------------------------------------------------------------------------------------------

    @cached_property
    def _named(self) -> dict[tuple[int, str], TableCatalog]:
        """Tables, views and indexes by schema and name."""
        named = (table for table in self.tables.values() if table.kind is not TableKind.INTERNAL)
        return {(table.schema_id, table.name): table for table in named}

    @cached_property
    def _readers(self) -> dict[int, list[TableCatalog]]:
        """The direct readers of each table, view or index, by name."""
        readers: dict[int, list[TableCatalog]] = {}
        for table in self.list():
            for dependency in table.dependencies:
                readers.setdefault(dependency, []).append(table)
        return readers

    @cached_property
    def _states(self) -> dict[int, list[TableCatalog]]:
        """The state tables of each job, by id."""
        states: dict[int, list[TableCatalog]] = {}
        for _, table in sorted(self.tables.items()):
            if table.kind is TableKind.INTERNAL:
                for job_id in table.dependencies:
                    states.setdefault(job_id, []).append(table)
        return states

    def indexes_of(self, table_id: int) -> list[TableCatalog]:
        """The complete indexes of a table, by name."""
        readers = self._readers.get(table_id, ())
        return [each for each in readers if each.kind is TableKind.INDEX and each.id not in self.creating]

    def find(self, name: ObjectName) -> TableCatalog | None:
        """The table, view or index of a name, or None."""
        schema = self.find_schema(name.schema, name.database)
        return None if schema is None else self.find_within(schema.id, name.name)

    def find_within(self, schema_id: int, name: str) -> TableCatalog | None:
        """The table, view or index of a name in a schema, or None."""
        return self._named.get((schema_id, name))

    def resolve(self, name: ObjectName) -> TableCatalog:
        """The table, view or index of a name; NotFound, with the closest name."""
        schema = self.resolve_schema(name.schema, name.database)
        found = self._named.get((schema.id, name.name))
        if found is None:
            raise NotFound(f"there is no table or view {str(name)!r}{self._hint(name, schema)}", name=name.name)
        return found

    def _hint(self, name: ObjectName, schema: SchemaCatalog) -> str:
        """Another schema that has the name, or the closest name in this schema."""
        elsewhere = sorted(str(self.name_of(table)) for (_, other), table in self._named.items() if other == name.name)
        near = get_close_matches(name.name, [other for within, other in self._named if within == schema.id], n=1)
        if elsewhere:
            return f"; there is {', '.join(elsewhere)}"
        return f"; did you mean {near[0]!r}?" if near else ""

    def find_function(self, schema_id: int, name: str) -> FunctionCatalog | None:
        """The user function of a name in a schema, or None."""
        return self._named_functions.get((schema_id, name))

    @cached_property
    def _named_functions(self) -> dict[tuple[int, str], FunctionCatalog]:
        return {(each.schema_id, each.name): each for each in self.functions.values()}

    def functions_within(self, schema_id: int) -> tuple[FunctionCatalog, ...]:
        """The user functions of a schema, by name."""
        return tuple(sorted((each for each in self.functions.values() if each.schema_id == schema_id),
                            key=lambda each: each.name))

    def find_schema(self, name: str, database: str) -> SchemaCatalog | None:
        """The schema of a name, or None."""
        within = next((each.id for each in self.databases.values() if each.name == database), None)
        found = (each for each in self.schemas.values() if (each.database_id, each.name) == (within, name))
        return next(found, None)

    def resolve_schema(self, name: str, database: str) -> SchemaCatalog:
        """The schema of a name; NotFound, with the closest name."""
        within = self.resolve_database(database)
        found = self.find_schema(name, database)
        if found is None:
            known = [each.name for each in self.schemas.values() if each.database_id == within.id]
            raise NotFound(f"there is no schema {name!r}{_near(name, known)}", name=name)
        return found

    def resolve_database(self, name: str) -> DatabaseCatalog:
        """The database of a name; NotFound, with the closest name."""
        for each in self.databases.values():
            if each.name == name:
                return each
        known = [each.name for each in self.databases.values()]
        raise NotFound(f"there is no database {name!r}{_near(name, known)}", name=name)

    def name_of(self, table: TableCatalog) -> ObjectName:
        """The fully qualified name of a table, view or index."""
        schema = self.schemas[table.schema_id]
        return ObjectName(table.name, schema.name, self.databases[schema.database_id].name)

    def show(self, tables: Iterable[TableCatalog]) -> list[str]:
        """Their names as written in SQL, sorted."""
        return sorted(str(self.name_of(table)) for table in tables)

    # ---- by id and kind --------------------------------------------------------------------------------------

    def get(self, table_id: int) -> TableCatalog:
        """The object with this id, state tables included; NotFound if it was never committed or was dropped."""
        try:
            return self.tables[table_id]
        except KeyError:
            raise NotFound(f"there is no table of id {table_id}", name=str(table_id)) from None

    def list(self, kind: TableKind | None = None, schema_id: int | None = None) -> tuple[TableCatalog, ...]:
        """Tables, views and indexes by name, or those of one kind; of one schema or of all."""
        tables = self._named.values() if kind is None else self.tables.values()
        chosen = (table for table in tables if kind in (None, table.kind) and schema_id in (None, table.schema_id))
        return tuple(sorted(chosen, key=lambda table: (table.name, table.schema_id)))

    def jobs(self) -> tuple[TableCatalog, ...]:
        """All objects that an actor writes, each after those it reads (ids ascend, and inputs are older)."""
        running = (table for table in self._named.values() if table.kind.is_job)
        return tuple(sorted(running, key=lambda table: table.id))

    def internal_tables(self, job_id: int) -> tuple[TableCatalog, ...]:
        """The state tables of a job's executors, by id."""
        return tuple(self._states.get(job_id, ()))

    def offset_table(self, table: TableCatalog) -> TableCatalog | None:
        """The source offsets of the job of `table`; None if it reads no connector."""
        name = offset_table_name(table)
        return next((state for state in self.internal_tables(table.id) if state.name == name), None)

    def dependents(self, table_id: int, column_id: int | None = None) -> tuple[TableCatalog, ...]:
        """The direct readers of a table or view, or of one of its columns, by name."""
        return tuple(
            table
            for table in self._readers.get(table_id, ())
            if column_id is None or table.reads is None or (table_id, column_id) in table.reads
        )

    def writers(self, table_id: int) -> tuple[TableCatalog, ...]:
        """The sinks into a table, by name."""
        return tuple(each for each in self.dependents(table_id) if table_id not in each.inputs)

    def upstream(self, table_ids: Iterable[int]) -> frozenset[int]:
        """The ids of these objects and of all whose changes reach them, through queries and through sinks into tables.
        """
        found, waiting = set(table_ids), list(table_ids)
        while waiting:
            table_id = waiting.pop()
            inputs = {*self.get(table_id).inputs, *(writer.id for writer in self.writers(table_id))} - found
            found |= inputs
            waiting += inputs
        return frozenset(found)

    def with_dependents(self, tables: Iterable[TableCatalog]) -> tuple[TableCatalog, ...]:
        """The objects and all their direct and indirect readers, readers first."""
        found = {table.id: table for table in tables}
        waiting = list(found)
        while waiting:
            for dependent in self.dependents(waiting.pop()):
                if dependent.id not in found:
                    found[dependent.id] = dependent
                    waiting.append(dependent.id)
        return tuple(sorted(found.values(), key=lambda each: -each.id))


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
