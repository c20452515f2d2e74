"""What the backslash commands show of the catalog, by queries that any client could send."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from relational.catalog.names import ObjectName
from relational.errors import NotFound
from relational.expr.functions import FUNCTIONS
from relational.expr.signature import Overload
from relational.result import Result
from stream.session.reader import ReaderSession

KINDS = {
    "\\dt": ("BASE TABLE",),
    "\\dv": ("VIEW",),
    "\\dm": ("MATERIALIZED VIEW",),
    "\\ds": ("SOURCE",),
    "\\dk": ("SINK",),
}
"""Commands that list objects, and their types in information_schema.tables."""
TYPE_NAMES = {"BASE TABLE": "table", "VIEW": "view", "MATERIALIZED VIEW": "materialized view", "SOURCE": "source",
              "SINK": "sink", "INDEX": "index"}
RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True)
class Description:
    """Rows; and how a table shows them: some of their columns, by default all, between the lines above and below."""

    rows: pa.Table
    title: str | None = None
    footer: str | None = None
    shown: tuple[str, ...] | None = None


def answer(session: ReaderSession, statement: str) -> pa.Table:
    """The rows of a query, SHOW or DESCRIBE."""
    found = session.sql(statement)
    rows = found.to_arrow() if isinstance(found, Result) else found
    assert isinstance(rows, pa.Table), statement
    return rows


def list_objects(kinds: Iterable[str] | None, session: ReaderSession, pattern: str | None) -> Description:
    """Schema, name and type of tables, views, sources and sinks; those whose name fits the pattern. `kinds`: as in
    information_schema.tables, None for all."""
    rows = answer(session, "SELECT table_schema, table_name, table_type FROM information_schema.tables "
                           "ORDER BY table_schema, table_name")
    chosen = [row for row in rows_of(rows) if (kinds is None or row[2] in kinds) and _fits(row[0], row[1], pattern)]
    return Description(_table({
        "schema": [row[0] for row in chosen],
        "name": [row[1] for row in chosen],
        "type": [TYPE_NAMES.get(row[2], row[2].lower()) for row in chosen],
    }))


def list_indexes(session: ReaderSession, pattern: str | None) -> Description:
    """The indexes but those of primary keys."""
    rows = rows_of(answer(session, "SELECT schemaname, indexname, tablename, indexdef FROM pg_indexes "
                                   "ORDER BY schemaname, indexname"))
    chosen = [row for row in rows if row[1] != f"{row[2]}_pkey" and _fits(row[0], row[1], pattern)]
    names = ("schema", "name", "table", "definition")
    return Description(_table({name: [row[at] for row in chosen] for at, name in enumerate(names)}))


def list_functions(session: ReaderSession, pattern: str | None) -> Description:
    """User functions; with a pattern also those of SQL that fit it."""
    rows = rows_of(answer(session, "SHOW FUNCTIONS").select(["name", "arguments", "returns", "kind"]))
    rows = [row for row in rows if _fits("public", row[0], pattern)]
    if pattern is not None:
        for name, overloads in sorted(FUNCTIONS.items()):
            if _fits("pg_catalog", name, pattern):
                rows += [(name, *_signature(overload), "built-in") for overload in overloads]
    names = ("name", "arguments", "returns", "kind")
    return Description(_table({name: [row[at] for row in rows] for at, name in enumerate(names)}))


def _signature(overload: Overload) -> tuple[str, str]:
    """Arguments and result."""
    found = overload.signature
    if found is None:
        return "any", "any"
    return ", ".join(map(str, found.takes)) + ("..." if found.is_variadic else ""), str(found.gives)


def describe(session: ReaderSession, name: str) -> Description:
    """The columns of an object, each with its place in the primary key. A table shows what some column has, and below
    the columns the key, the indexes, the definition, and the state unless it runs."""
    columns = answer(session, f"DESCRIBE {name}")
    schema, plain, kind = _found(session, name)
    rows = [row for row in columns.to_pylist() if not row["is_hidden"]]
    described: dict[str, list[str | None]] = {
        "column": [row["name"] for row in rows],
        "type": [row["type"] for row in rows],
        "nullable": ["not null" if row["not_null"] else None for row in rows],
        "default": [row["default"] for row in rows],
        "comment": [row["comment"] for row in rows],
        "primary_key": [str(row["primary_key"]) if row["primary_key"] else None for row in rows],
    }
    shown = tuple(title for title, cells in described.items()
                  if title in ("column", "type") or (any(cells) and title != "primary_key"))
    key = sorted((row["primary_key"], row["name"]) for row in rows if row["primary_key"])
    footer = [f"Primary key: {', '.join(column for _, column in key)}"] if key else []
    footer += [f"Index: {index} on {_between_parentheses(definition)}" for index, definition in
               _indexes(session, schema, plain)]
    footer += _state(session, schema, plain)
    definition = str(answer(session, f"SHOW CREATE {_create_kind(kind)} {name}")["definition"][0])
    footer.append(f"Definition:\n  {definition.replace(chr(10), chr(10) + '  ')}")
    named = TYPE_NAMES[kind]
    title = f"{named[0].upper()}{named[1:]} {schema}.{plain}"
    return Description(_table(described), title, "\n".join(footer), shown)


def _found(session: ReaderSession, name: str) -> tuple[str, str, str]:
    """Schema, name and type of the object of a name in SQL. NotFound."""
    whole = ObjectName.parse(_folded(name))
    known = [*rows_of(answer(session, "SELECT table_schema, table_name, table_type FROM information_schema.tables")),
             *((schema, index, "INDEX") for schema, index in
               rows_of(answer(session, "SELECT schemaname, indexname FROM pg_indexes")))]
    for schema, plain, kind in known:
        if (schema, plain) == (whole.schema, whole.name):
            return schema, plain, kind
    raise NotFound(f"there is no table or view {name!r}", name=name)


def _folded(name: str) -> str:
    """A name in SQL as one of Python: unquoted parts in lower case."""
    return re.sub(r'"[^"]*"|[^"]+', lambda part: part[0] if part[0].startswith('"') else part[0].lower(), name)


def _create_kind(kind: str) -> str:
    return "TABLE" if kind == "BASE TABLE" else kind


def _indexes(session: ReaderSession, schema: str, table: str) -> list[tuple[str, str]]:
    rows = rows_of(answer(session, "SELECT schemaname, tablename, indexname, indexdef FROM pg_indexes"))
    return sorted((index, definition) for within, of, index, definition in rows
                  if (within, of) == (schema, table) and index != f"{table}_pkey")


def _between_parentheses(definition: str) -> str:
    return definition[definition.find("(") :] if "(" in definition else definition


def _state(session: ReaderSession, schema: str, name: str) -> list[str]:
    """The state of a job that does not simply run, and why."""
    names = {f"{schema}.{name}", *([name] if schema == "public" else [])}
    jobs = [job for job in answer(session, "SHOW JOBS").to_pylist() if job["name"] in names]
    return [f"State: {job['state']}{': ' + job['reason'] if job['reason'] else ''}" for job in jobs
            if job["state"] != RUNNING]


def _fits(schema: str, name: str, pattern: str | None) -> bool:
    """Whether a name fits a pattern of psql: * and ? stand for any characters, a dot parts schema and name."""
    if pattern is None:
        return True
    within, dot, plain = pattern.rpartition(".")
    plain, within = (each.strip('"') if each.startswith('"') else each.lower() for each in (plain, within))
    return fnmatch.fnmatchcase(name, plain) and (not dot or fnmatch.fnmatchcase(schema, within))


def rows_of(rows: pa.Table) -> list[tuple]:
    """The rows as tuples."""
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _table(columns: Mapping[str, list]) -> pa.Table:
    return pa.table({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def is_pattern(name: str) -> bool:
    """Whether a name given to a command stands for several."""
    return "*" in name or "?" in name


LISTS: Mapping[str, Callable[[ReaderSession, str | None], Description]] = {
    "\\d": partial(list_objects, None),
    **{name: partial(list_objects, kinds) for name, kinds in KINDS.items()},
    "\\di": list_indexes,
    "\\df": list_functions,
    "\\dn": lambda session, pattern: Description(answer(session, "SHOW SCHEMAS")),
    "\\l": lambda session, pattern: Description(answer(session, "SHOW DATABASES")),
}
"""What each command lists, for a pattern or everything."""
