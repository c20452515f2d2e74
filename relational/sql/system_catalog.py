"""pg_catalog and information_schema: the catalog as the tables that PostgreSQL's clients read.

Each table is computed from a snapshot of the catalog when a query that names it is bound, and planned as rows that were
written in the query. Objects of the default database are listed, without state tables. Numbers of objects are their ids
here; those of schemas are `SCHEMA_OID` and more. Tables of things that do not exist here (triggers, roles but one,
extensions) are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relational.catalog.names import DEFAULT_DATABASE, DEV, ObjectName, SchemaCatalog
from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import BindError
from relational.expr.registry.system import OWNER, OWNER_OID
from relational.expr.scope import error_span, unknown
from relational.expr.unbound import TextSpan
from relational.plan.logical import ColumnValues, LogicalPlan
from relational.sql.context import CatalogReader
from relational.sql.ddl.show_create import default_text, definition_of
from relational.sql.settings import SETTINGS
from relational.types.data_type import DataType, Field, TypeKind
from relational.types.postgres import POSTGRES_TYPES, type_name, type_oid
from relational.types.schema import Schema
from relational.udf.function import LANGUAGE, FunctionKind, UserFunction, Volatility

PG_CATALOG, INFORMATION_SCHEMA = "pg_catalog", "information_schema"
SYSTEM_SCHEMAS = (PG_CATALOG, INFORMATION_SCHEMA)
SCHEMA_OID, PG_CATALOG_OID, INFORMATION_SCHEMA_OID = 2200, 11, 13_000
DEFAULT_TABLESPACE = 1663
PG_CLASS_OID = 1_259
KEY_OID = 1 << 30
"""More than any id of a table: the index of the primary key of a table has this number plus the table's."""
_RELKIND = {
    TableKind.TABLE: "r",
    TableKind.SOURCE: "r",
    TableKind.SINK: "r",
    TableKind.MATERIALIZED_VIEW: "m",
    TableKind.VIEW: "v",
    TableKind.INDEX: "i",
}
_TABLE_TYPE = {
    TableKind.TABLE: "BASE TABLE",
    TableKind.MATERIALIZED_VIEW: "MATERIALIZED VIEW",
    TableKind.VIEW: "VIEW",
    TableKind.SOURCE: "SOURCE",
    TableKind.SINK: "SINK",
}
Rows = Iterator[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SystemTable:
    """Its columns, and its rows at a snapshot."""

    columns: Schema
    rows: Callable[[CatalogSnapshot], Rows]

    def plan(self, known: CatalogSnapshot) -> ColumnValues:
        """The rows at a snapshot."""
        rows = list(self.rows(known))
        arrays = tuple(
            pa.array([row[at] for row in rows], field.data_type.arrow) for at, field in enumerate(self.columns)
        )
        return ColumnValues(self.columns, arrays)


def read_system_table(
    catalog: CatalogReader, name: ObjectName, has_schema: bool, span: TextSpan | None
) -> LogicalPlan | None:
    """The rows of a table of the system catalog; without a schema one of pg_catalog, unless a table has its name. None
    for another name; BindError for one that pg_catalog and information_schema do not have.
    """
    schema = name.schema if has_schema else PG_CATALOG
    if name.database != DEFAULT_DATABASE or schema not in SYSTEM_SCHEMAS:
        return None
    table = _TABLES.get((schema, name.name))
    if table is not None and (has_schema or catalog.find(name) is None):
        return table.plan(catalog.snapshot)
    if has_schema:
        known = [each for within, each in _TABLES if within == schema]
        raise BindError(unknown(f"table of {schema}", name.name, known), **error_span(span))
    return None


def _relations(known: CatalogSnapshot) -> Iterator[tuple[TableCatalog, SchemaCatalog]]:
    """The objects of the default database, with their schemas."""
    for table in known.list():
        schema = known.schemas[table.schema_id]
        if schema.database_id == DEV.id:
            yield table, schema


def _schemas(known: CatalogSnapshot) -> Iterator[tuple[int, str]]:
    """(oid, name)"""
    yield PG_CATALOG_OID, PG_CATALOG
    yield INFORMATION_SCHEMA_OID, INFORMATION_SCHEMA
    for schema in sorted(known.schemas.values(), key=lambda each: each.id):
        if schema.database_id == DEV.id:
            yield SCHEMA_OID + schema.id, schema.name


def _columns(table: TableCatalog) -> Iterator[tuple[int, ColumnCatalog]]:
    """The visible columns, numbered from 1."""
    for number, index in enumerate(table.visible_indices, 1):
        yield number, table.columns[index]


def _key_numbers(table: TableCatalog) -> list[int] | None:
    """The numbers of the columns of a declared primary key; None without one."""
    if table.kind is not TableKind.TABLE or table.row_id_index is not None:
        return None
    numbers = {index: number for number, index in enumerate(table.visible_indices, 1)}
    return [numbers[index] for index in table.pk_indices]


def _has_index(table: TableCatalog, known: CatalogSnapshot) -> bool:
    is_indexed = any(each.kind is TableKind.INDEX for each in known.dependents(table.id))
    return is_indexed or _key_numbers(table) is not None


def _pg_namespace(known: CatalogSnapshot) -> Rows:
    for oid, name in _schemas(known):
        yield oid, name, OWNER_OID, None


def _pg_class(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        count = len(table.visible_indices)
        yield _class_row(table.id, table.name, schema, _RELKIND[table.kind], count, _has_index(table, known))
        key = _key_numbers(table)
        if key is not None:
            yield _class_row(KEY_OID + table.id, f"{table.name}_pkey", schema, "i", len(key), False)


def _class_row(
    oid: int, name: str, schema: SchemaCatalog, kind: str, columns: int, has_index: bool
) -> tuple[Any, ...]:
    return (
        oid, name, SCHEMA_OID + schema.id, 0, 0, OWNER_OID, 0, oid, 0, 0, -1.0, 0, 0, has_index, False, "p", kind,
        columns, 0, False, False, False, False, False, True, "d", False, 0, None, None, None,
    )  # fmt: skip


def _pg_attribute(known: CatalogSnapshot) -> Rows:
    for table, _ in _relations(known):
        for number, column in _columns(table):
            yield _attribute_row(table.id, number, column)
        for at, number in enumerate(_key_numbers(table) or (), 1):
            yield _attribute_row(KEY_OID + table.id, at, table.columns[table.visible_indices[number - 1]])


def _pg_description(known: CatalogSnapshot) -> Rows:
    for oid, number, text in descriptions(known):
        yield oid, PG_CLASS_OID, number, text


def descriptions(known: CatalogSnapshot) -> Iterator[tuple[int, int, str]]:
    """(oid, number of the column, comment) of the objects of the default database; 0: of the object."""
    for table, _ in _relations(known):
        if table.comment:
            yield table.id, 0, table.comment
        for number, column in _columns(table):
            if column.comment:
                yield table.id, number, column.comment


def _attribute_row(relation: int, number: int, column: ColumnCatalog) -> tuple[Any, ...]:
    data_type, modifier = column.data_type, -1
    if column.max_length is not None:
        modifier = column.max_length + 4
    elif data_type.kind is TypeKind.NUMERIC and data_type != DataType.NUMERIC:
        modifier = ((data_type.precision or 0) << 16 | (data_type.scale or 0)) + 4
    dimensions = str(data_type).count("[]")
    size = -1 if dimensions else POSTGRES_TYPES[data_type.kind].size
    return (
        relation, column.name, type_oid(data_type), size, number, dimensions, modifier, column.not_null,
        column.default is not None, "", "", False, True, 0, 0, "p", None, None,
    )  # fmt: skip


def _pg_type(known: CatalogSnapshot) -> Rows:
    for each in POSTGRES_TYPES.values():
        kind = "p" if each.category == "P" else "b"
        common = (PG_CATALOG_OID, OWNER_OID)
        yield (each.oid, each.internal_name, *common, each.size, kind, each.category, 0, each.list_oid, 0, 0, -1,
               False, None, ",", 0)
        yield (each.list_oid, f"_{each.internal_name}", *common, -1, "b", "A", each.oid, 0, 0, 0, -1, False, None, ",",
               0)


def _indexes(known: CatalogSnapshot) -> Iterator[tuple[int, TableCatalog, str, list[int], bool]]:
    """(oid, table, name, numbers of the key's columns, is primary)"""
    for table, _ in _relations(known):
        key = _key_numbers(table)
        if key is not None:
            yield KEY_OID + table.id, table, f"{table.name}_pkey", key, True
        if table.kind is TableKind.INDEX:
            above = known.get(table.dependencies[0])
            numbers = {column.name: number for number, column in _columns(above)}
            names = [table.columns[index].name for index in table.pk_indices]
            yield table.id, above, table.name, [numbers[name] for name in names if name in numbers], False


def _pg_index(known: CatalogSnapshot) -> Rows:
    for oid, table, _, key, is_primary in _indexes(known):
        count = len(key)
        yield (
            oid, table.id, count, count, is_primary, is_primary, False, False, True, False, True, True, False, key,
            [0] * count, [0] * count, [0] * count, None, None,
        )  # fmt: skip


def _pg_constraint(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        key = _key_numbers(table)
        if key is not None:
            oid = KEY_OID + table.id
            yield (oid, f"{table.name}_pkey", SCHEMA_OID + schema.id, "p", False, False, True, table.id, 0, oid, 0, 0,
                   " ", " ", " ", True, 0, True, key, None, None)


def _pg_attrdef(known: CatalogSnapshot) -> Rows:
    for table, _ in _relations(known):
        for number, column in _columns(table):
            if column.default is not None:
                yield table.id, table.id, number, default_text(column.default, column.data_type)


def _pg_database(known: CatalogSnapshot) -> Rows:
    for database in sorted(known.databases.values(), key=lambda each: each.id):
        yield database.id + 1, database.name, OWNER_OID, 6, "C", "C", False, True, -1, DEFAULT_TABLESPACE, None


def _pg_tables(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind is TableKind.TABLE:
            yield schema.name, table.name, OWNER, None, _has_index(table, known), False, False, False


def _pg_views(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind is TableKind.VIEW:
            yield schema.name, table.name, OWNER, definition_of(table, known.name_of(table))


def _pg_matviews(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind is TableKind.MATERIALIZED_VIEW:
            definition = definition_of(table, known.name_of(table))
            yield schema.name, table.name, OWNER, None, _has_index(table, known), True, definition


def _pg_indexes(known: CatalogSnapshot) -> Rows:
    for _, table, name, key, is_primary in _indexes(known):
        names = [table.columns[table.visible_indices[number - 1]].name for number in key]
        unique = "UNIQUE " if is_primary else ""
        text = f"CREATE {unique}INDEX {name} ON {known.name_of(table)} ({', '.join(names)})"
        yield known.schemas[table.schema_id].name, table.name, name, None, text


def _pg_roles(known: CatalogSnapshot) -> Rows:
    yield OWNER_OID, OWNER, True, True, True, True, True, True, True, -1, None, None


def _pg_user(known: CatalogSnapshot) -> Rows:
    yield OWNER, OWNER_OID, True, True, False, True, None, None, None


def _pg_settings(known: CatalogSnapshot) -> Rows:
    for name, setting in SETTINGS.items():
        yield name, setting.default, setting.meaning, setting.default


def _schemata(known: CatalogSnapshot) -> Rows:
    for _, name in _schemas(known):
        yield DEFAULT_DATABASE, name, OWNER


def _information_tables(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind in _TABLE_TYPE:
            writable = table.kind is TableKind.TABLE and table.connector is None
            yield DEFAULT_DATABASE, schema.name, table.name, _TABLE_TYPE[table.kind], _yes(writable)


def _information_columns(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind not in _TABLE_TYPE:
            continue
        key = _key_numbers(table) or ()
        for number, column in _columns(table):
            yield _column_row(schema, table, column, number, column.not_null or number in key)


def _column_row(
    schema: SchemaCatalog, table: TableCatalog, column: ColumnCatalog, number: int, not_null: bool
) -> tuple[Any, ...]:
    data_type = column.data_type
    is_list = data_type.element is not None
    default = None if column.default is None else default_text(column.default, data_type)
    name = "ARRAY" if is_list else type_name(data_type).partition("(")[0]
    element = data_type
    while element.element is not None:
        element = element.element
    internal = ("_" if is_list else "") + POSTGRES_TYPES[element.kind].internal_name
    bits = {TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64, TypeKind.REAL: 24, TypeKind.DOUBLE: 53}
    has_point = data_type.kind is TypeKind.NUMERIC
    precision = data_type.precision if has_point else bits.get(data_type.kind)
    scale = data_type.scale if has_point else 0 if data_type.is_integer else None
    radix = None if precision is None else 10 if has_point else 2
    times = (TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ, TypeKind.INTERVAL)
    moment = 6 if data_type.kind in times else 0 if data_type.kind is TypeKind.DATE else None
    return (
        DEFAULT_DATABASE, schema.name, table.name, column.name, number, default, _yes(not not_null), name,
        column.max_length, precision, radix, scale, moment, DEFAULT_DATABASE, PG_CATALOG, internal, "NO", "NEVER",
        _yes(table.kind is TableKind.TABLE),
    )  # fmt: skip


def _information_views(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if table.kind is TableKind.VIEW:
            yield DEFAULT_DATABASE, schema.name, table.name, definition_of(table, known.name_of(table)), "NO", "NO"


def _table_constraints(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        if _key_numbers(table) is not None:
            at = DEFAULT_DATABASE, schema.name
            yield *at, f"{table.name}_pkey", *at, table.name, "PRIMARY KEY", "NO", "NO"


def _key_column_usage(known: CatalogSnapshot) -> Rows:
    for table, schema in _relations(known):
        for position, number in enumerate(_key_numbers(table) or (), 1):
            at = DEFAULT_DATABASE, schema.name
            column = table.columns[table.visible_indices[number - 1]].name
            yield *at, f"{table.name}_pkey", *at, table.name, column, position, None


def _functions(known: CatalogSnapshot) -> Iterator[tuple[UserFunction, SchemaCatalog]]:
    """The user functions of the default database, with their schemas, by id."""
    for _, function in sorted(known.functions.items()):
        schema = known.schemas[function.schema_id]
        if schema.database_id == DEV.id:
            yield function.function, schema


def _pg_proc(known: CatalogSnapshot) -> Rows:
    for function, schema in _functions(known):
        kind = "a" if function.kind is FunctionKind.AGGREGATE else "f"
        is_set = function.kind is FunctionKind.TABLE
        types = [type_oid(each) for each in function.types]
        yield (function.id, function.name, SCHEMA_OID + schema.id, OWNER_OID, type_oid(function.returns), kind,
               function.is_strict, is_set, function.volatility.value[0], len(types), types,
               [each.name for each in function.arguments], function.source)


def _routines(known: CatalogSnapshot) -> Rows:
    for function, schema in _functions(known):
        at = DEFAULT_DATABASE, schema.name
        name = "record" if function.returns.fields else type_name(function.returns).partition("(")[0]
        yield (*at, f"{function.name}_{function.id}", *at, function.name, "FUNCTION", name, "EXTERNAL",
               function.source, function.handler, LANGUAGE.upper(), _yes(function.volatility is Volatility.IMMUTABLE),
               _yes(function.is_strict))


def _nothing(known: CatalogSnapshot) -> Rows:
    return iter(())


def _yes(holds: bool) -> str:
    return "YES" if holds else "NO"


def _schema_of(text: str) -> Schema:
    """`name type, …`: `b` is BOOLEAN, `t` VARCHAR, `n` BIGINT, `s` SMALLINT, `i` INT, `r` REAL, `l` SMALLINT[], `m`
    BIGINT[], `w` VARCHAR[]."""
    kinds = {
        "b": DataType.BOOLEAN, "t": DataType.VARCHAR, "n": DataType.BIGINT, "s": DataType.SMALLINT, "i": DataType.INT,
        "r": DataType.REAL, "l": DataType.list_of(DataType.SMALLINT),
        "m": DataType.list_of(DataType.BIGINT), "w": DataType.list_of(DataType.VARCHAR),
    }  # fmt: skip
    return Schema(Field(name, kinds[kind]) for name, kind in (each.split() for each in text.split(",")))


def _table(columns: str, rows: Callable[[CatalogSnapshot], Rows] = _nothing) -> SystemTable:
    return SystemTable(_schema_of(columns), rows)


_PG_TABLES: dict[str, SystemTable] = {
    "pg_namespace": _table("oid n, nspname t, nspowner n, nspacl t", _pg_namespace),
    "pg_class": _table(
        "oid n, relname t, relnamespace n, reltype n, reloftype n, relowner n, relam n, relfilenode n, "
        "reltablespace n, relpages i, reltuples r, relallvisible i, reltoastrelid n, relhasindex b, relisshared b, "
        "relpersistence t, relkind t, relnatts s, relchecks s, relhasrules b, relhastriggers b, relhassubclass b, "
        "relrowsecurity b, relforcerowsecurity b, relispopulated b, relreplident t, relispartition b, relrewrite n, "
        "relacl t, reloptions t, relpartbound t",
        _pg_class,
    ),
    "pg_attribute": _table(
        "attrelid n, attname t, atttypid n, attlen s, attnum s, attndims s, atttypmod i, attnotnull b, atthasdef b, "
        "attidentity t, attgenerated t, attisdropped b, attislocal b, attinhcount s, attcollation n, attstorage t, "
        "attacl t, attoptions t",
        _pg_attribute,
    ),
    "pg_type": _table(
        "oid n, typname t, typnamespace n, typowner n, typlen s, typtype t, typcategory t, typelem n, typarray n, "
        "typrelid n, typbasetype n, typtypmod i, typnotnull b, typdefault t, typdelim t, typcollation n",
        _pg_type,
    ),
    "pg_index": _table(
        "indexrelid n, indrelid n, indnatts s, indnkeyatts s, indisunique b, indisprimary b, indisexclusion b, "
        "indisclustered b, indisvalid b, indcheckxmin b, indisready b, indislive b, indisreplident b, indkey l, "
        "indcollation l, indclass l, indoption l, indexprs t, indpred t",
        _pg_index,
    ),
    "pg_constraint": _table(
        "oid n, conname t, connamespace n, contype t, condeferrable b, condeferred b, convalidated b, conrelid n, "
        "contypid n, conindid n, conparentid n, confrelid n, confupdtype t, confdeltype t, confmatchtype t, "
        "conislocal b, coninhcount s, connoinherit b, conkey l, confkey l, conbin t",
        _pg_constraint,
    ),
    "pg_attrdef": _table("oid n, adrelid n, adnum s, adbin t", _pg_attrdef),
    "pg_database": _table(
        "oid n, datname t, datdba n, encoding i, datcollate t, datctype t, datistemplate b, datallowconn b, "
        "datconnlimit i, dattablespace n, datacl t",
        _pg_database,
    ),
    "pg_tables": _table(
        "schemaname t, tablename t, tableowner t, tablespace t, hasindexes b, hasrules b, hastriggers b, rowsecurity b",
        _pg_tables,
    ),
    "pg_views": _table("schemaname t, viewname t, viewowner t, definition t", _pg_views),
    "pg_matviews": _table(
        "schemaname t, matviewname t, matviewowner t, tablespace t, hasindexes b, ispopulated b, definition t",
        _pg_matviews,
    ),
    "pg_indexes": _table("schemaname t, tablename t, indexname t, tablespace t, indexdef t", _pg_indexes),
    "pg_roles": _table(
        "oid n, rolname t, rolsuper b, rolinherit b, rolcreaterole b, rolcreatedb b, rolcanlogin b, rolreplication b, "
        "rolbypassrls b, rolconnlimit i, rolpassword t, rolvaliduntil t",
        _pg_roles,
    ),
    "pg_user": _table(
        "usename t, usesysid n, usecreatedb b, usesuper b, userepl b, usebypassrls b, passwd t, valuntil t, "
        "useconfig t",
        _pg_user,
    ),
    "pg_settings": _table("name t, setting t, short_desc t, boot_val t", _pg_settings),
    "pg_am": _table("oid n, amname t, amhandler t, amtype t"),
    "pg_collation": _table("oid n, collname t, collnamespace n, collowner n, collprovider t, collencoding i"),
    "pg_description": _table("objoid n, classoid n, objsubid i, description t", _pg_description),
    "pg_shdescription": _table("objoid n, classoid n, description t"),
    "pg_depend": _table("classid n, objid n, objsubid i, refclassid n, refobjid n, refobjsubid i, deptype t"),
    "pg_enum": _table("oid n, enumtypid n, enumsortorder r, enumlabel t"),
    "pg_extension": _table("oid n, extname t, extowner n, extnamespace n, extrelocatable b, extversion t"),
    "pg_foreign_server": _table("oid n, srvname t, srvowner n, srvfdw n"),
    "pg_foreign_table": _table("ftrelid n, ftserver n, ftoptions t"),
    "pg_inherits": _table("inhrelid n, inhparent n, inhseqno i"),
    "pg_partitioned_table": _table("partrelid n, partstrat t, partnatts s, partdefid n"),
    "pg_policy": _table("oid n, polname t, polrelid n, polcmd t, polpermissive b"),
    "pg_proc": _table(
        "oid n, proname t, pronamespace n, proowner n, prorettype n, prokind t, proisstrict b, proretset b, "
        "provolatile t, pronargs s, proargtypes m, proargnames w, prosrc t",
        _pg_proc,
    ),
    "pg_range": _table("rngtypid n, rngsubtype n, rngcollation n"),
    "pg_rewrite": _table("oid n, rulename t, ev_class n, ev_type t"),
    "pg_sequences": _table("schemaname t, sequencename t, sequenceowner t, last_value n"),
    "pg_stat_activity": _table("datid n, datname t, pid i, usename t, application_name t, state t, query t"),
    "pg_tablespace": _table("oid n, spcname t, spcowner n, spcacl t, spcoptions t"),
    "pg_trigger": _table("oid n, tgrelid n, tgname t, tgfoid n, tgtype s, tgenabled t, tgisinternal b, tgconstraint n"),
}
_INFORMATION_TABLES: dict[str, SystemTable] = {
    "schemata": _table("catalog_name t, schema_name t, schema_owner t", _schemata),
    "tables": _table(
        "table_catalog t, table_schema t, table_name t, table_type t, is_insertable_into t", _information_tables
    ),
    "columns": _table(
        "table_catalog t, table_schema t, table_name t, column_name t, ordinal_position i, column_default t, "
        "is_nullable t, data_type t, character_maximum_length i, numeric_precision i, numeric_precision_radix i, "
        "numeric_scale i, datetime_precision i, udt_catalog t, udt_schema t, udt_name t, is_identity t, "
        "is_generated t, is_updatable t",
        _information_columns,
    ),
    "views": _table(
        "table_catalog t, table_schema t, table_name t, view_definition t, is_updatable t, is_insertable_into t",
        _information_views,
    ),
    "table_constraints": _table(
        "constraint_catalog t, constraint_schema t, constraint_name t, table_catalog t, table_schema t, table_name t, "
        "constraint_type t, is_deferrable t, initially_deferred t",
        _table_constraints,
    ),
    "key_column_usage": _table(
        "constraint_catalog t, constraint_schema t, constraint_name t, table_catalog t, table_schema t, table_name t, "
        "column_name t, ordinal_position i, position_in_unique_constraint i",
        _key_column_usage,
    ),
    "referential_constraints": _table("constraint_catalog t, constraint_schema t, constraint_name t"),
    "routines": _table(
        "specific_catalog t, specific_schema t, specific_name t, routine_catalog t, routine_schema t, routine_name t, "
        "routine_type t, data_type t, routine_body t, routine_definition t, external_name t, external_language t, "
        "is_deterministic t, is_null_call t",
        _routines,
    ),
    "sequences": _table("sequence_catalog t, sequence_schema t, sequence_name t, data_type t"),
}
_TABLES: dict[tuple[str, str], SystemTable] = {
    **{(PG_CATALOG, name): table for name, table in _PG_TABLES.items()},
    **{(INFORMATION_SCHEMA, name): table for name, table in _INFORMATION_TABLES.items()},
}
