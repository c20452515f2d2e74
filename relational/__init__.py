"""Rows, columns, expressions and plans over a state store of bytes."""

import hummock  # noqa: F401 - an unbuilt source tree says so here
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
