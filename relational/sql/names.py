"""Names of objects in statements, and their resolution; every error refers to the name."""

from __future__ import annotations

from sqlglot import exp

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import MAX_PARTS, ObjectName, SchemaCatalog
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import BindError, NotFound, ParseError
from relational.expr.bind import error_span, unknown
from relational.expr.unbound import TextSpan
from relational.sql.context import CatalogReader
from relational.sql.expressions import Translator
from relational.sql.lexer import TokenReader

JOB_KINDS: dict[tuple[str, ...], TableKind] = {
    ("TABLE",): TableKind.TABLE,
    ("MATERIALIZED", "VIEW"): TableKind.MATERIALIZED_VIEW,
    ("SINK",): TableKind.SINK,
    ("INDEX",): TableKind.INDEX,
}


def read_job_kind(reader: TokenReader) -> TableKind | None:
    """The kind of a job, if its words are next."""
    return next((kind for words, kind in JOB_KINDS.items() if reader.accept(*words)), None)


def read_name(reader: TokenReader, what: str) -> tuple[ObjectName, TextSpan]:
    """`name`, `schema.name` or `database.schema.name`, and its span."""
    start, end = reader.span
    parts = [reader.name(what)]
    while reader.accept("."):
        end = reader.span[1]
        parts.append(reader.name(what))
    if len(parts) > MAX_PARTS:
        raise BindError(f"a name is database.schema.name at most, this has {len(parts)} parts", start=start, end=end)
    return ObjectName.of(parts), (start, end)


def read_schema_name(reader: TokenReader) -> tuple[str, str, TextSpan]:
    """The name of a schema and of its database, `schema` or `database.schema`, and their span."""
    name, span = read_name(reader, "a schema")
    if name.database != ObjectName("").database:
        raise BindError("a schema's name is database.schema at most", **error_span(span))
    database = name.schema if name.schema != ObjectName("").schema else name.database
    return name.name, database, span


def name_in_tree(node: exp.Table, translate: Translator) -> tuple[ObjectName, TextSpan | None]:
    """The name of a table in sqlglot's tree, and its span."""
    parts = [node.args[part] for part in ("catalog", "db", "this") if node.args.get(part) is not None]
    if node.args.get("joins"):
        raise ParseError("JOIN is not supported here", **error_span(translate.span(node.args["joins"][0])))
    if isinstance(node.this, exp.Dot):
        raise BindError("a name is database.schema.name at most", **error_span(translate.span(node)))
    first, last = translate.span(parts[0]), translate.span(parts[-1])
    span = None if first is None or last is None else (first[0], last[1])
    return ObjectName.of([translate.identifier(part) for part in parts]), span


def alias_in_tree(node: exp.Expr, translate: Translator) -> str | None:
    """The alias of a relation in sqlglot's tree; None without one."""
    alias = node.args.get("alias")
    return None if alias is None else translate.identifier(alias.this or alias)


def alias_columns(node: exp.Expr, translate: Translator) -> list[str]:
    """The column names that an alias lists."""
    alias = node.args.get("alias")
    return [] if alias is None else [translate.identifier(each) for each in alias.args.get("columns") or ()]


def resolved(catalog: CatalogReader, name: ObjectName, span: TextSpan | None) -> TableCatalog:
    """The table, view or index of a name; BindError at `span` with the closest name if there is none."""
    try:
        return catalog.resolve(name)
    except NotFound as error:
        raise BindError(str(error), **error_span(span)) from error


def function_named(catalog: CatalogReader, name: ObjectName, span: TextSpan | None) -> FunctionCatalog:
    """The user function of a name, which need not be allowed to run; BindError at `span` with the closest name if there
    is none."""
    schema = schema_of(catalog, name.schema, name.database, span)
    found = catalog.snapshot.find_function(schema.id, name.name)
    if found is None:
        known = [each.name for each in catalog.snapshot.functions_within(schema.id)]
        raise BindError(unknown("user function", name.name, known), **error_span(span))
    return found


def schema_of(catalog: CatalogReader, name: str, database: str, span: TextSpan | None) -> SchemaCatalog:
    """The schema of a name; BindError at `span` with the closest name if there is none."""
    try:
        return catalog.resolve_schema(name, database)
    except NotFound as error:
        raise BindError(str(error), **error_span(span)) from error
