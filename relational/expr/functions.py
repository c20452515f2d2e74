"""The registry of functions and operators: for each name its overloads, each with its argument types, its result type
and its kernel. SQL's operators, its functions with a grammar of their own, and functions called by name all end here.

The rows are in `registry`, one module for a family: a name and, for each signature, its text and its kernel.
`resolve` selects an overload by the argument types and returns the types they are converted to first. Kernels see
converted arguments only. Functions evaluated by branches (AND, OR, CASE, COALESCE) have their types here and their
evaluation in `eval`. Stored plans name functions by these names: a name keeps its meaning (see `kernel_version`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from relational.expr.expression import Call, Expression, InputRef, Literal
from relational.expr.registry import json, mathematics, moments, nested, operators, sets, system, text
from relational.expr.registry.moments import VOLATILE
from relational.expr.registry.operators import COMPARISONS
from relational.expr.signature import Kernel, Overload, Types, merged
from relational.types.data_type import DataType

__all__ = [
    "ALIASES",
    "ARGUMENT_NAMES",
    "COMPARISONS",
    "FUNCTIONS",
    "SET_FUNCTIONS",
    "VOLATILE",
    "adapt",
    "is_total",
    "kernel_of",
    "resolve",
]

FUNCTIONS: dict[str, tuple[Overload, ...]] = merged(
    operators.ROWS, mathematics.ROWS, text.ROWS, moments.ROWS, json.ROWS, nested.ROWS, sets.ROWS, system.ROWS
)
SET_FUNCTIONS = frozenset(sets.ROWS)
"""Functions that give rows, as a list: they are bound where rows can come of one, and nowhere else."""
ALIASES = {
    "array_is_intersect": "overlaps",
    "array_is_overlap": "overlaps",
    "array_join": "array_to_string",
    "array_overlaps": "overlaps",
    "array_to_json": "to_jsonb",
    "btrim": "trim",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "json_array_elements": "jsonb_array_elements",
    "json_array_elements_text": "jsonb_array_elements_text",
    "json_array_length": "jsonb_array_length",
    "json_build_array": "jsonb_build_array",
    "json_build_object": "jsonb_build_object",
    "json_each": "jsonb_each",
    "json_each_text": "jsonb_each_text",
    "json_extract_path": "jsonb_extract_path",
    "json_extract_path_text": "jsonb_extract_path_text",
    "json_object": "jsonb_object",
    "json_object_keys": "jsonb_object_keys",
    "json_strip_nulls": "jsonb_strip_nulls",
    "json_typeof": "jsonb_typeof",
    "log10": "log",
    "mod": "modulo",
    "pow": "power",
    "row_to_json": "to_jsonb",
    "strpos": "position",
    "substr": "substring",
    "to_json": "to_jsonb",
}
"""Other names of functions in SQL."""
ARGUMENT_NAMES = {
    "make_interval": ("years", "months", "weeks", "days", "hours", "mins", "secs"),
}
"""Names of the arguments of functions that are called with some of them, `name => value`; the others are 0."""
_TOTAL = frozenset((*COMPARISONS, "is_distinct", "is_not_distinct", "is_null", "is_not_null", "in", "in_list", "not",
                    "and", "or"))


def resolve(name: str, types: Types) -> tuple[Overload, Types, DataType] | None:
    """The first overload of `name` that accepts `types`, None without one. KeyError for an unknown name."""
    for overload in FUNCTIONS[name]:
        found = overload.resolve(types)
        if found is not None:
            return overload, *found
    return None


def adapt(name: str, types: Types, unknown: Sequence[bool]) -> tuple[Overload, Types, DataType] | None:
    """As `resolve`, where an `unknown` argument, a text or NULL literal, is of any type that a signature names."""
    for overload in FUNCTIONS[name]:
        found = None if overload.signature is None else overload.signature.adapt(types, unknown)
        if found is not None:
            return overload, *found
    return None


@lru_cache(maxsize=1024)
def kernel_of(name: str, types: Types) -> Kernel:
    """The kernel of a bound call, whose argument types are already converted."""
    found = resolve(name, types)
    assert found is not None, (name, types)
    assert found[0].kernel is not None, name
    return found[0].kernel


def is_total(expression: Expression) -> bool:
    """Whether it is cheap and has a value for every row, so that it need not be confined to the rows that reach it."""
    if isinstance(expression, Call):
        return expression.function in _TOTAL and all(map(is_total, expression.args))
    return isinstance(expression, (InputRef, Literal))
