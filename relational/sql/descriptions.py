"""obj_description and col_description: the comments of objects and columns, as pg_description lists them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.unbound import TextSpan, UnboundCall, UnboundCast, UnboundExpr, UnboundLiteral
from relational.sql.system_catalog import descriptions
from relational.types.data_type import DataType

DESCRIBING = {"obj_description": (1, 2), "col_description": (2, 2)}
"""Numbers of arguments, from and to."""
_CLASS = "pg_class"


def description(
    function: str, arguments: Sequence[UnboundExpr], known: CatalogSnapshot, span: TextSpan | None
) -> UnboundExpr:
    """obj_description(oid [, 'pg_class']) or col_description(oid, number): a lookup in the comments that the catalog
    has now. NULL without one. BindError for other numbers of arguments."""
    least, most = DESCRIBING[function]
    if not least <= len(arguments) <= most:
        wanted = " or ".join(map(str, sorted({least, most})))
        raise BindError(f"{function} takes {wanted} arguments, not {len(arguments)}", **error_span(span))
    within: UnboundExpr = UnboundLiteral(_CLASS)
    number: UnboundExpr = UnboundLiteral(0)
    if function == "col_description":
        number = arguments[1]
    elif len(arguments) == 2:
        within = arguments[1]
    texts = {f"{_CLASS}.{oid}.{column}": text for oid, column, text in descriptions(known)}
    parts = (within, UnboundLiteral("."), arguments[0], UnboundLiteral("."), number)
    key = UnboundCall("concat_known", tuple(UnboundCast(part, DataType.VARCHAR) for part in parts), span)
    constant = UnboundCast(UnboundLiteral(json.dumps(texts)), DataType.JSONB, span)
    return UnboundCall("jsonb_extract_path_text", (constant, key), span)
