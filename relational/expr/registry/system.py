"""Rows of the registry: functions about the server and its catalog, as PostgreSQL's clients call them.

There is one role, one current database and one current schema, and no object has a comment or a privilege of its own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from relational.expr.eval_context import EvalContext, Value
from relational.expr.kernels.per_value import per_value
from relational.expr.signature import Kernel, Overload, row
from relational.types.data_type import DataType
from relational.types.postgres import name_of_oid

OWNER, OWNER_OID = "root", 1
VERSION = "PostgreSQL 15.0 (Hummock)"


def _constant(value: Any) -> Kernel:
    """The kernel of a function without an argument that counts."""

    def kernel(evaluation: EvalContext, args: list[Value], result: DataType) -> Value:
        return pa.scalar(value, result.arrow)

    return kernel


def _owner(oid: int) -> str:
    return OWNER if oid == OWNER_OID else f"unknown (OID={oid})"


def _type_name(oid: int | None, modifier: int | None = None) -> str | None:
    """format_type: the name of a type, with the length or the digits that its modifier has."""
    if oid is None:
        return None
    name = name_of_oid(oid) or "???"
    if modifier is None or modifier < 4:
        return name
    base, brackets, _ = name.partition("[]")
    if base == "numeric":
        return f"{base}({(modifier - 4) >> 16},{(modifier - 4) & 0xFFFF}){brackets}"
    return f"{base}({modifier - 4}){brackets}" if base == "character varying" else name


def _texts(name: str) -> tuple[Overload, ...]:
    return (row("-> varchar", _constant(name)),)


def _always(*signatures: str, value: Any) -> tuple[Overload, ...]:
    return tuple(row(signature, _constant(value)) for signature in signatures)


def _schemas(with_implicit: bool) -> list[str]:
    return ["pg_catalog", "public"] if with_implicit else ["public"]


_PRIVILEGE = ("varchar, varchar -> boolean", "bigint, varchar -> boolean")
ROWS: dict[str, tuple[Overload, ...]] = {
    "col_description": _always("bigint, int -> varchar", value=None),
    "current_catalog": _texts("dev"),
    "current_database": _texts("dev"),
    "current_role": _texts(OWNER),
    "current_schema": _texts("public"),
    "current_schemas": (row("boolean -> varchar[]", per_value(_schemas)),),
    "current_user": _texts(OWNER),
    "format_type": (row("bigint, int? -> varchar", per_value(_type_name, takes_nulls=True)),),
    "has_database_privilege": _always(*_PRIVILEGE, value=True),
    "has_schema_privilege": _always(*_PRIVILEGE, value=True),
    "has_table_privilege": _always(*_PRIVILEGE, value=True),
    "obj_description": _always("bigint, varchar? -> varchar", value=None),
    "pg_backend_pid": _always("-> int", value=1),
    "pg_encoding_to_char": (row("int -> varchar", per_value(lambda code: "UTF8" if code == 6 else "")),),
    "pg_get_expr": (row("varchar, bigint, boolean? -> varchar", per_value(lambda text, *_: text)),),
    "pg_get_userbyid": (row("bigint -> varchar", per_value(_owner)),),
    "pg_is_in_recovery": _always("-> boolean", value=False),
    "pg_table_is_visible": _always("bigint -> boolean", value=True),
    "pg_type_is_visible": _always("bigint -> boolean", value=True),
    "session_user": _texts(OWNER),
    "shobj_description": _always("bigint, varchar -> varchar", value=None),
    "version": _texts(VERSION),
}
"""Functions of one family by their names, with an overload for each signature."""
