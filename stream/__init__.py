"""Hummock's streaming engine: materialized views that follow the changes of their tables.

    import stream
    from stream import col, functions as f

    db = stream.connect("memory://")

This module holds the public API; README.md and CHECKPOINT.md describe the implementation."""

from __future__ import annotations

from collections.abc import Mapping

from relational.expr import fluent as functions
from relational.expr.unbound import col, lit
from relational.types import DataType, Interval, Schema
from stream.connector.base import (
    Connector,
    SplitEnumerator,
    SplitReader,
    register_connector,
)
from stream.options import StreamOptions
from stream.session.session import Session, connect
from stream.session.table import Table

__all__ = [
    "Connector",
    "DataType",
    "Interval",
    "Schema",
    "Session",
    "SplitEnumerator",
    "SplitReader",
    "StreamOptions",
    "Table",
    "col",
    "connect",
    "functions",
    "lit",
    "register_connector",
]


def _flights(options: Mapping[str, str], schema: Schema) -> Connector:
    """Imports the example and its data set when a table first names it."""
    from stream.examples.flights.connector import FlightsConnector

    return FlightsConnector(options, schema)


register_connector("flights", _flights)
