"""Rows from elsewhere: the contract of a connector, the registry of those that exist, and the ones that come along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stream.connector.base import (
    Connector,
    SplitEnumerator,
    SplitReader,
    open_connector,
    register_connector,
    validated,
    without_malformed,
)

if TYPE_CHECKING:
    from relational.types import Schema

def _flights(options: Mapping[str, str], schema: Schema) -> Connector:
    """The data set is read by whoever asks for it: nobody else pays for its import."""
    from stream.examples.flights.connector import FlightsConnector

    return FlightsConnector(options, schema)


register_connector("flights", _flights)

__all__ = ["Connector", "SplitEnumerator", "SplitReader", "open_connector", "register_connector", "validated",
           "without_malformed"]
