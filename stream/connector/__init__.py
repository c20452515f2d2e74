"""Connectors to external streams of rows: their interface and their registry."""

from stream.connector.base import (
    Connector,
    SplitReader,
    open_connector,
    register_connector,
    validated,
    without_malformed,
)

__all__ = ["Connector", "SplitReader", "open_connector", "register_connector", "validated", "without_malformed"]
