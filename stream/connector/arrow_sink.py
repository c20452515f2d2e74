"""Changes as Arrow batches for a function of this process: `arrow_sink(name, function)`, then
`CREATE SINK … WITH (connector = 'arrow', name = …)`.

The function is called once for each batch of committed changes, in order, with the epoch up to which they go and a
RecordBatchReader: the columns of the query, and `_op`: 0 for an inserted row, 1 for a deleted one, 2 and 3 for the new
and the old row of an update, the old one first. A call that returns is not repeated while the process lives, nor after
its session was closed; after a death the changes since the last barrier that followed a call come again, with the same
epochs, and in order. While no function has the name, or it raises, changes wait in the log of the sink.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from stream.connector.option_values import OptionValues
from stream.connector.sink import SinkIdentity, SinkTarget
from stream.errors import ConnectorError

NAME = "arrow"
Receive: TypeAlias = "Callable[[int, pa.RecordBatchReader], object]"

_FUNCTIONS: dict[str, ArrowSink] = {}
_LOCK = threading.Lock()


class ArrowSink(ClosedAtExit):
    """A registered function; a context manager that removes it at its end. Thread safe."""

    def __init__(self, name: str, function: Receive) -> None:
        self.name, self.function = name, function

    def close(self) -> None:
        """The function is called no more, after a call that may be under way. Idempotent."""
        with _LOCK:
            if _FUNCTIONS.get(self.name) is self:
                del _FUNCTIONS[self.name]


def arrow_sink(name: str, function: Receive) -> ArrowSink:
    """Registers `function(epoch, changes)` as `name`, until the result is closed. It is called by the delivering thread
    of each sink of that name. ConnectorError if the name is taken.

        received = []
        stream.arrow_sink("orders", lambda epoch, changes: received.append(changes.read_all().num_rows))
        db.sql("CREATE SINK sent AS SELECT * FROM orders WITH (connector = 'arrow', name = 'orders')")
        db.close()                              # waits until all is delivered
        received                                # [3]
    """
    with _LOCK:
        if name in _FUNCTIONS:
            raise ConnectorError(NAME, f"a function {name!r} is registered already: close it first")
        _FUNCTIONS[name] = ArrowSink(name, function)
        return _FUNCTIONS[name]


class ArrowTarget(SinkTarget):
    """Calls the function that is registered under the option `name`."""

    def __init__(self, options: Mapping[str, str], identity: SinkIdentity) -> None:
        self._name = OptionValues(NAME, options, ("name",)).text("name")

    def deliver(self, epoch: int, changes: Iterator[pa.RecordBatch]) -> None:
        with _LOCK:
            found = _FUNCTIONS.get(self._name)
        if found is None:
            raise ConnectorError(NAME, f"this process has no function {self._name!r}: stream.arrow_sink adds it")
        first = next(changes)
        found.function(epoch, pa.RecordBatchReader.from_batches(first.schema, chain((first,), changes)))
