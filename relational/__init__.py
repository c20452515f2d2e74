"""Rows, columns, expressions and plans over a state store of bytes."""

from typing import Any

import hummock  # an unbuilt source tree says so here
from relational.expr import fluent as functions
from relational.expr.unbound import col, lit
from relational.relation import Relation, TableRelation
from relational.result import Result, ResultSet
from relational.types import DataType, Field, Interval, Schema

__all__ = [
    "DataType",
    "Field",
    "Interval",
    "Relation",
    "Result",
    "ResultSet",
    "Schema",
    "TableRelation",
    "col",
    "functions",
    "lit",
]


def __getattr__(name: str) -> Any:
    if name != "__version__":
        raise AttributeError(f"module 'relational' has no attribute {name!r}")
    return hummock.__version__
