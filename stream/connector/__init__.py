"""Rows from elsewhere: the contract of a connector, the registry of those that exist, and the ones that come along."""

from stream.connector.base import (
    Connector,
    SplitEnumerator,
    SplitReader,
    open_connector,
    register_connector,
    validated,
    without_malformed,
)
from stream.connector.flights import FlightsConnector

register_connector("flights", FlightsConnector)

__all__ = ["Connector", "SplitEnumerator", "SplitReader", "open_connector", "register_connector", "validated",
           "without_malformed"]
