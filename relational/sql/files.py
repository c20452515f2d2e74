"""Files in a FROM: `read_csv ('path', option => value, …)`, or 'path.csv' as the name of a relation.

Which files there are, and what is in them, is the matter of whoever opens them for the catalog.
"""

from __future__ import annotations

from sqlglot import exp

from relational.errors import BindError
from relational.expr.bind import ExprBinder, Scope, error_span
from relational.expr.eval import constant_value
from relational.expr.expression import is_constant
from relational.expr.parameters import has_parameters
from relational.plan.logical import ExternalScan
from relational.sql.context import CatalogReader
from relational.sql.expressions import Translator
from relational.types.schema import Schema

_SUFFIXES = {
    "parquet": "parquet", "csv": "csv", "json": "json", "ndjson": "json", "jsonl": "json", "arrow": "arrow",
    "feather": "arrow",
}
"""What names of files end with, and the format of such a file."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_FUNCTIONS = {f"read_{form}": form for form in ("parquet", "csv", "json", "arrow")}


def format_of(location: str) -> str | None:
    """The format that the name of a file tells; None for another name."""
    name = location.partition("?")[0] if "://" in location else location
    for compressed in _COMPRESSED:
        name = name.removesuffix(compressed)
    _, dot, suffix = name.rpartition(".")
    return _SUFFIXES.get(suffix.lower()) if dot else None


def reads_files(node: exp.Expr) -> bool:
    """Whether the function that a relation of a FROM calls reads files."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS


def rows_of_files(node: exp.Anonymous, translate: Translator, catalog: CatalogReader) -> ExternalScan:
    """read_csv ('path' [, option => value, …]). BindError; the errors of what opens the files."""
    name = node.name.lower()
    places = [each for each in node.expressions if not isinstance(each, exp.Kwarg)]
    if len(places) != 1:
        raise BindError(f"{name} takes one path, and options by name", **error_span(translate.span(node)))
    options = {
        each.this.name.lower(): _text(each.expression, translate, name)
        for each in node.expressions if isinstance(each, exp.Kwarg)
    }
    return ExternalScan(catalog.open_rows(_FUNCTIONS[name], _text(places[0], translate, name), options))


def _text(node: exp.Expr, translate: Translator, function: str) -> str:
    """A constant as text."""
    bound = ExprBinder(Scope(Schema())).bind(translate.term(node))
    value = constant_value(bound) if is_constant(bound) and not has_parameters(bound) else None
    if value is None:
        raise BindError(f"{function} takes constants", **error_span(translate.span(node)))
    return str(value).lower() if isinstance(value, bool) else str(value)
