"""Hummock's streaming engine: materialized views that follow the changes of their tables.

    import stream
    from stream import col, functions as f

    db = stream.connect("memory://")

This module holds the public API; README.md and CHECKPOINT.md describe the implementation. A name is imported from its
module when it is first used (PEP 562)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relational.expr import fluent as functions
    from relational.expr.unbound import col, lit
    from relational.inbox.client import Inbox
    from relational.types import DataType, Interval, Schema
    from stream.connector.arrow_sink import arrow_sink
    from stream.connector.arrow_streams import arrow_source
    from stream.connector.base import Connector, SplitEnumerator, SplitReader, register_connector
    from stream.connector.sink import SinkTarget, register_sink
    from stream.operations import backup, doctor, restore
    from stream.options import StreamOptions
    from stream.session.connect import connect
    from stream.session.reader import ReaderSession
    from stream.session.session import Session
    from stream.session.table import Table

    __version__: str

__all__ = [
    "Connector",
    "DataType",
    "Inbox",
    "Interval",
    "ReaderSession",
    "Schema",
    "Session",
    "SinkTarget",
    "SplitEnumerator",
    "SplitReader",
    "StreamOptions",
    "Table",
    "arrow_sink",
    "arrow_source",
    "backup",
    "col",
    "connect",
    "doctor",
    "functions",
    "lit",
    "register_connector",
    "register_sink",
    "restore",
]

MODULES = {
    "hummock": ("__version__",),
    "stream.notebook": ("load_ipython_extension", "unload_ipython_extension"),
    "relational.expr.unbound": ("col", "lit"),
    "relational.inbox.client": ("Inbox",),
    "relational.types": ("DataType", "Interval", "Schema"),
    "stream.connector.arrow_sink": ("arrow_sink",),
    "stream.connector.arrow_streams": ("arrow_source",),
    "stream.connector.base": ("Connector", "SplitEnumerator", "SplitReader", "register_connector"),
    "stream.connector.sink": ("SinkTarget", "register_sink"),
    "stream.operations": ("backup", "doctor", "restore"),
    "stream.options": ("StreamOptions",),
    "stream.session.connect": ("connect",),
    "stream.session.reader": ("ReaderSession",),
    "stream.session.session": ("Session",),
    "stream.session.table": ("Table",),
}


def __getattr__(name: str) -> Any:
    if name == "functions":
        value: Any = importlib.import_module("relational.expr.fluent")
    else:
        module = next((module for module, names in MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module 'stream' has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
