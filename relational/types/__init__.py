"""Types, schemas, orders and intervals: descriptions of columns, independent of rows."""

from relational.types.data_type import DataType, Field, TypeKind
from relational.types.interval import Interval
from relational.types.ordering import ASCENDING, DESCENDING, OrderType, SortKey
from relational.types.schema import Schema
from relational.types.vnode_rule import VnodeRule

__all__ = [
    "ASCENDING",
    "DESCENDING",
    "DataType",
    "Field",
    "Interval",
    "OrderType",
    "Schema",
    "SortKey",
    "TypeKind",
    "VnodeRule",
]
