"""Catalog changes of DDL statements, as pure functions of a catalog snapshot.

Each returns the operations of a transaction with their preconditions: the transaction fails if, in the meantime, the
name was taken or anything that the plan depends on was changed. Error messages name the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hummock.meta.store.base import MetaOperations
from relational.catalog.alter import column_index, with_column_name, with_ttl, without_column
from relational.catalog.followers import NO_FOLLOWERS, Followers, names_of
from relational.catalog.functions import FunctionCatalog, callers, delete_functions, functions_of
from relational.catalog.job_failure import JobFailure
from relational.catalog.job_record import JobRecord
from relational.catalog.names import DEV, PUBLIC, DatabaseCatalog, SchemaCatalog, check_name
from relational.catalog.objects import TableCatalog, TableKind
from relational.catalog.records import (
    creating_key,
    database_key,
    database_name_key,
    encode,
    failed_key,
    function_key,
    job_key,
    loaded_key,
    schema_key,
    schema_name_key,
    table_key,
    table_name_key,
)
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import CatalogError, DependencyError, Duplicate, NotFound

_RENAMED = (TableKind.TABLE, TableKind.VIEW, TableKind.MATERIALIZED_VIEW, TableKind.INDEX)
"""Kinds of objects whose name nothing outside of the catalog knows."""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """The dropped objects (tables, views and indexes, readers first) with their state tables; the operations; and the
    followers that go with the objects."""

    dropped: tuple[TableCatalog, ...]
    states: tuple[TableCatalog, ...]
    operations: MetaOperations
    followers: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[int, ...]:
        """Ids of the stopped jobs."""
        return tuple(table.id for table in self.dropped if table.kind.is_job)

    @property
    def stored(self) -> tuple[int, ...]:
        """Ids whose rows are no longer read."""
        return (*self.jobs, *(state.id for state in self.states))


def create_table(
    snapshot: CatalogSnapshot,
    table: TableCatalog,
    internals: Iterable[TableCatalog] = (),
    record: JobRecord | None = None,
    *,
    is_creating: bool = False,
) -> MetaOperations:
    """Creates a table, view or index with the state tables of its job and how it runs. Duplicate if the name is taken;
    NotFound if its schema, or an object that it reads or a function that it calls, no longer exists.
    """
    check_name(table.name)
    require: dict[str, bytes | None] = dict(_within(snapshot, table))
    for dependency in table.dependencies:
        snapshot.get(dependency)
        require[table_key(dependency)] = snapshot.rows[table_key(dependency)]
    for number, name in functions_of(table).items():
        if number not in snapshot.functions:
            raise NotFound(f"function {name!r} was dropped meanwhile", name=name)
        require[function_key(number)] = snapshot.rows[function_key(number)]
    put = {table_key(each.id): encode(each) for each in (table, *internals)}
    put[table_name_key(table.schema_id, table.name)] = str(table.id).encode()
    if record is not None:
        put[job_key(table.id)] = encode(record)
    if is_creating:
        put[creating_key(table.id)] = b""
    created = MetaOperations(require=require | dict.fromkeys(put), put=put)
    return created + forget_loaded(table.id) if table.id in snapshot.loaded else created


def note_loaded(table_id: int, table_ids: Iterable[int]) -> MetaOperations:
    """Records that a load fills `table_ids` for an object that does not exist yet. Creating the object deletes the
    record; otherwise the rows must be dropped.
    """
    key = loaded_key(table_id)
    return MetaOperations(require={key: None}, put={key: json.dumps(sorted(table_ids)).encode()})


def forget_loaded(table_id: int) -> MetaOperations:
    """Deletes the record: the object exists, or will never exist."""
    return MetaOperations(delete=(loaded_key(table_id),))


def note_failures(failures: Iterable[JobFailure], beside: Iterable[MetaOperations] = ()) -> MetaOperations:
    """Suspends jobs, except those that the changes `beside` in the same transaction drop. It has no preconditions, so a
    DDL planned before a job failed can be committed after it: the one process with the writer role decides both.
    """
    deleted = {key for operations in beside for key in operations.delete}
    rows = {failed_key(failure.job_id): encode(failure) for failure in failures}
    return MetaOperations(put={key: row for key, row in rows.items() if key not in deleted})


def finish_creating(job_ids: Iterable[int]) -> MetaOperations:
    """The jobs have read all existing rows of the tables that they read."""
    return MetaOperations(delete=tuple(creating_key(job_id) for job_id in job_ids))


def put_job_records(records: Iterable[JobRecord], states: Iterable[TableCatalog] = ()) -> MetaOperations:
    """Stores how jobs run, and the current form of their state tables."""
    jobs = {job_key(record.job_id): encode(record) for record in records}
    return MetaOperations(put=jobs | {table_key(state.id): encode(state) for state in states})


def forget_failures(job_ids: Iterable[int]) -> MetaOperations:
    """Resumes jobs that were set aside."""
    return MetaOperations(delete=tuple(failed_key(job_id) for job_id in job_ids))


def rebuild_jobs(
    snapshot: CatalogSnapshot,
    jobs: Sequence[TableCatalog],
    states: Iterable[TableCatalog],
    records: Sequence[JobRecord],
) -> DropPlan:
    """Replaces views and indexes by those of the same names under new ids; their other readers read the new ones.
    REQUIRES that all jobs that read one of them are among them.
    """
    old = [snapshot.find_within(job.schema_id, job.name) for job in jobs]
    gone = _dropping(snapshot, [each for each in reversed(old) if each is not None])
    names = {table_name_key(job.schema_id, job.name): str(job.id).encode() for job in jobs}
    put = {table_key(each.id): encode(each) for each in (*jobs, *states)}
    put |= {job_key(record.job_id): encode(record) for record in records}
    put |= {creating_key(record.job_id): b"" for record in records}
    require = {**gone.operations.require, **dict.fromkeys(put), **{name: snapshot.rows[name] for name in names}}
    delete = tuple(key for key in gone.operations.delete if key not in names)
    return replace(gone, operations=MetaOperations(require=require, put={**put, **names}, delete=delete))


def _within(snapshot: CatalogSnapshot, table: TableCatalog) -> dict[str, bytes]:
    """Preconditions on the schema of a new object; Duplicate if the schema already has the name."""
    if table.schema_id not in snapshot.schemas:
        raise NotFound(f"the schema of {table.name!r} was dropped meanwhile", name=table.name)
    taken = snapshot.find_within(table.schema_id, table.name)
    if taken is not None:
        raise Duplicate(f"there is already {taken.kind.one} {table.name!r}: IF NOT EXISTS leaves it as it is, DROP "
                        "removes it", name=table.name)
    key = schema_key(table.schema_id)
    return {} if table.schema_id == PUBLIC.id else {key: snapshot.rows[key]}


def alter_table(snapshot: CatalogSnapshot, altered: TableCatalog) -> MetaOperations:
    """Commits the next version of a table's columns. CatalogError if the table was altered in the meantime."""
    current = snapshot.get(altered.id)
    if altered.schema_version != current.schema_version + 1:
        raise CatalogError(f"table {current.name!r} was altered meanwhile: send the statement again", name=current.name)
    key = table_key(altered.id)
    return MetaOperations(require={key: snapshot.rows[key]}, put={key: encode(altered)})


def rename_column(
    snapshot: CatalogSnapshot, table_id: int, name: str, new: str
) -> tuple[TableCatalog, MetaOperations]:
    """The next version of a table, with another name of a column. DependencyError naming the views that show the
    column by the name that it has; materialized views have names of their own. NotFound, Duplicate, CatalogError.
    """
    table = snapshot.get(table_id)
    altered = with_column_name(table, name, new)
    readers = snapshot.dependents(table_id, table.columns[column_index(table, name)].column_id)
    views = [each for each in readers if each.kind is TableKind.VIEW]
    if views:
        raise _needed(snapshot, table.name, f"column {name!r} of table {table.name!r} is read by", views,
                      ": drop it first")
    return altered, alter_table(snapshot, altered)


def rename_table(snapshot: CatalogSnapshot, table: TableCatalog, name: str, definition: str) -> MetaOperations:
    """Gives a table, view or index another name in its schema, and its state tables that name; `definition` is its new
    text. DependencyError naming the sinks that write it by its name; Duplicate, CatalogError.
    """
    check_name(name)
    if table.kind not in _RENAMED or table.connector is not None:
        what = table.kind.one if table.connector is None else "a table of a connector"
        raise CatalogError(f"{table.name!r} is {what}, which keeps its name: drop it and create it anew", name=name)
    if snapshot.find_within(table.schema_id, name) is not None:
        raise Duplicate(f"there is already a table or view {name!r}", name=name)
    if writers := snapshot.writers(table.id):
        raise _needed(snapshot, table.name, f"{table.kind} {table.name!r} is written by", writers, ": drop it first")
    prefix = f"{table.name}."
    changed = [replace(table, name=name, definition=definition)]
    for state in snapshot.internal_tables(table.id):
        if state.name.startswith(prefix):
            changed.append(replace(state, name=f"{name}.{state.name[len(prefix):]}"))
    put = {table_key(each.id): encode(each) for each in changed}
    old, new = table_name_key(table.schema_id, table.name), table_name_key(table.schema_id, name)
    require = {key: snapshot.rows[key] for key in (*put, old)}
    return MetaOperations(require={**require, new: None}, put={**put, new: snapshot.rows[old]}, delete=(old,))


def comment(snapshot: CatalogSnapshot, table_id: int, column: str | None, text: str) -> MetaOperations:
    """Gives an object, or a column of it, a comment; "": none. NotFound if either was dropped."""
    table = snapshot.get(table_id)
    if column is None:
        commented = replace(table, comment=text)
    else:
        at = column_index(table, column)
        columns = (*table.columns[:at], replace(table.columns[at], comment=text), *table.columns[at + 1 :])
        commented = replace(table, columns=columns)
    key = table_key(table_id)
    return MetaOperations(require={key: snapshot.rows[key]}, put={key: encode(commented)})


def set_ttl(snapshot: CatalogSnapshot, table_id: int, ttl_ms: int) -> tuple[TableCatalog, MetaOperations]:
    """The next version of a table, whose rows expire after `ttl_ms`. CatalogError; DependencyError naming the jobs that
    follow the table, which would keep rows that expire.
    """
    table = snapshot.get(table_id)
    altered = with_ttl(table, ttl_ms)
    followers = [each for each in snapshot.dependents(table_id) if each.kind.is_job and table_id in each.inputs]
    if followers and not table.ttl_ms:
        raise _needed(
            snapshot, table.name, f"table {table.name!r} is followed by", followers,
            ", which would keep the rows that expire: drop them first",
        )
    return altered, alter_table(snapshot, altered)


def drop_column(
    snapshot: CatalogSnapshot, table_id: int, name: str, *, cascade: bool = False
) -> tuple[TableCatalog, DropPlan]:
    """The next version of a table, and the objects dropped with the column. DependencyError naming its readers, unless
    `cascade`, which drops them too.
    """
    table = snapshot.get(table_id)
    altered = without_column(table, name)
    readers = snapshot.dependents(table_id, table.columns[column_index(table, name)].column_id)
    if readers and not cascade:
        raise _needed(
            snapshot, table.name, f"column {name!r} of table {table.name!r} is read by", readers,
            "; DROP COLUMN … CASCADE drops them too",
        )
    plan = _dropping(snapshot, snapshot.with_dependents(readers))
    return altered, DropPlan(plan.dropped, plan.states, plan.operations + alter_table(snapshot, altered))


def drop_table(
    snapshot: CatalogSnapshot, table: TableCatalog, *, cascade: bool = False, followers: Followers = NO_FOLLOWERS
) -> DropPlan:
    """Drops a table, view or index, and the indexes of a table. DependencyError naming its other readers and its
    followers, unless `cascade`, which drops them too.
    """
    dropped = snapshot.with_dependents((table,))
    own = (table, *(each for each in snapshot.dependents(table.id) if each.kind is TableKind.INDEX))
    readers = {each.id: each for mine in own for each in snapshot.dependents(mine.id) if each not in own}
    following = [f"subscription {name}" for name in names_of(followers, own)]
    if (readers or following) and not cascade:
        verb = "read or written" if snapshot.writers(table.id) else "read"
        raise _needed(
            snapshot, table.name, f"{table.kind} {table.name!r} is {verb} by", readers.values(),
            "; DROP … CASCADE drops them too", following,
        )
    return _dropping(snapshot, dropped)


def replace_table(
    snapshot: CatalogSnapshot,
    old: TableCatalog,
    table: TableCatalog,
    internals: Iterable[TableCatalog] = (),
    followers: Followers = NO_FOLLOWERS,
) -> DropPlan:
    """Replaces a table by another of the same name. DependencyError if the old one has readers or followers."""
    if (old.schema_id, old.name) != (table.schema_id, table.name):
        raise CatalogError(f"{table.name!r} cannot come in the place of {old.name!r}", name=table.name)
    plan = drop_table(snapshot, old, followers=followers)
    name = table_name_key(old.schema_id, old.name)
    put = {table_key(each.id): encode(each) for each in (table, *internals)}
    require = {**plan.operations.require, **dict.fromkeys(put), name: snapshot.rows[name]}
    delete = tuple(key for key in plan.operations.delete if key != name)
    operations = MetaOperations(require=require, put={**put, name: str(table.id).encode()}, delete=delete)
    return replace(plan, operations=operations)


def _needed(
    snapshot: CatalogSnapshot,
    name: str,
    needed: str,
    users: Iterable[TableCatalog],
    rest: str,
    others: Sequence[str] = (),
) -> DependencyError:
    """The refusal to change the object `name`: what is `needed`, the names of its `users` and of `others`, the rest of
    the text."""
    names = [*snapshot.show(users), *others]
    return DependencyError(f"{needed} {', '.join(names)}{rest}", name=name, dependents=names)


def _dropping(snapshot: CatalogSnapshot, dropped: Sequence[TableCatalog]) -> DropPlan:
    states = tuple(state for table in dropped for state in snapshot.internal_tables(table.id))
    keys = [table_key(table.id) for table in (*dropped, *states)]
    names = [table_name_key(table.schema_id, table.name) for table in dropped]
    jobs = [key(table.id) for table in dropped if table.kind.is_job for key in (failed_key, job_key, creating_key)]
    require = {key: snapshot.rows[key] for key in keys}
    return DropPlan(tuple(dropped), states, MetaOperations(require=require, delete=(*keys, *names, *jobs)))


def create_schema(snapshot: CatalogSnapshot, schema: SchemaCatalog) -> MetaOperations:
    """Creates an empty schema. Duplicate if the name is taken."""
    check_name(schema.name, "a schema")
    database = snapshot.databases.get(schema.database_id)
    if database is None:
        raise NotFound(f"the database of schema {schema.name!r} was dropped meanwhile", name=schema.name)
    if snapshot.find_schema(schema.name, database.name) is not None:
        raise Duplicate(f"there is already a schema {schema.name!r}", name=schema.name)
    above = database_key(database.id)
    put = {
        schema_key(schema.id): encode(schema),
        schema_name_key(database.id, schema.name): str(schema.id).encode(),
    }
    require = {} if database.id == DEV.id else {above: snapshot.rows[above]}
    return MetaOperations(require={**dict.fromkeys(put), **require}, put=put)


def drop_schema(snapshot: CatalogSnapshot, schema: SchemaCatalog, *, cascade: bool = False) -> DropPlan:
    """Drops a schema; with `cascade`, its objects and all their readers. DependencyError, CatalogError."""
    if schema.id == PUBLIC.id:
        raise CatalogError("the schema 'public' is always there: drop what stands in it", name=schema.name)
    content = snapshot.list(schema_id=schema.id)
    if content and not cascade:
        raise _needed(
            snapshot, schema.name, f"schema {schema.name!r} holds", content,
            "; DROP SCHEMA … CASCADE drops them too",
        )
    functions = snapshot.functions_within(schema.id)
    if functions and not cascade:
        names = [each.name for each in functions]
        raise DependencyError(f"schema {schema.name!r} holds function {', '.join(names)}; DROP SCHEMA … CASCADE drops "
                              "them too", name=schema.name, dependents=names)
    users = [table for each in functions for table in callers(snapshot, each.id)]
    plan = _dropping(snapshot, snapshot.with_dependents((*content, *users)))
    key = schema_key(schema.id)
    gone = (key, schema_name_key(schema.database_id, schema.name))
    own = MetaOperations(require={key: snapshot.rows[key]}, delete=gone) + delete_functions(snapshot, functions)
    return DropPlan(plan.dropped, plan.states, plan.operations + own)


def drop_function(snapshot: CatalogSnapshot, function: FunctionCatalog, *, cascade: bool = False) -> DropPlan:
    """Drops a function. DependencyError naming the views, indexes and sinks that call it, unless `cascade`, which drops
    them and their readers too.
    """
    users = callers(snapshot, function.id)
    if users and not cascade:
        raise _needed(snapshot, function.name, f"{function.function.kind} {function.name!r} is called by", users,
                      "; DROP … CASCADE drops them too")
    plan = _dropping(snapshot, snapshot.with_dependents(users))
    return replace(plan, operations=plan.operations + delete_functions(snapshot, (function,)))


def create_database(snapshot: CatalogSnapshot, database: DatabaseCatalog, public: SchemaCatalog) -> MetaOperations:
    """Creates a database with its `public` schema. Duplicate if the name is taken."""
    check_name(database.name, "a database")
    if any(each.name == database.name for each in snapshot.databases.values()):
        raise Duplicate(f"there is already a database {database.name!r}", name=database.name)
    put = {
        database_key(database.id): encode(database),
        database_name_key(database.name): str(database.id).encode(),
        schema_key(public.id): encode(public),
        schema_name_key(database.id, public.name): str(public.id).encode(),
    }
    return MetaOperations(require=dict.fromkeys(put), put=put)


def drop_database(snapshot: CatalogSnapshot, database: DatabaseCatalog) -> DropPlan:
    """Drops a database and its schemas, which must be empty. DependencyError, CatalogError."""
    if database.id == DEV.id:
        raise CatalogError("the database 'dev' is always there", name=database.name)
    schemas = [schema for schema in snapshot.schemas.values() if schema.database_id == database.id]
    content = [table for schema in schemas for table in snapshot.list(schema_id=schema.id)]
    functions = [each.name for schema in schemas for each in snapshot.functions_within(schema.id)]
    if functions:
        raise DependencyError(f"database {database.name!r} holds function {', '.join(functions)}: drop them first, or "
                              "their schemas with CASCADE", name=database.name, dependents=functions)
    if content:
        raise _needed(
            snapshot, database.name, f"database {database.name!r} holds", content,
            ": drop them first, or their schemas with CASCADE",
        )
    keys = [database_key(database.id), *(schema_key(schema.id) for schema in schemas)]
    names = [
        database_name_key(database.name),
        *(schema_name_key(database.id, schema.name) for schema in schemas),
    ]
    require = {key: snapshot.rows[key] for key in keys}
    return DropPlan((), (), MetaOperations(require=require, delete=(*keys, *names)))
