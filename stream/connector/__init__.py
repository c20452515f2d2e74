"""Rows from elsewhere: the contract of a connector and the registry of those that exist."""

from stream.connector.base import (
    Connector,
    SplitEnumerator,
    SplitReader,
    open_connector,
    register_connector,
)

__all__ = ["Connector", "SplitEnumerator", "SplitReader", "open_connector", "register_connector"]
