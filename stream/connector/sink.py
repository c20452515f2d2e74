"""Sinks that keep what they deliver within the store: a digest of the changes, or nothing but their number.

    digest      the digest of relational/chunk/change_digest.pyx over all rows delivered, which equal streams share
    blackhole   the numbers of rows only: for measurements, and to run a query for the errors that it counts

A sink's state is one row of its table, written at each barrier in the epoch of the changes, so that both are committed
or both are lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from relational.chunk import Op
from relational.chunk.change_digest import change_digest
from stream.connector.base import CONNECTOR_OPTION
from stream.errors import ConnectorError, UnknownConnector

if TYPE_CHECKING:
    from relational.chunk import StreamChunk

MASK = (1 << 64) - 1
SinkState = tuple[int, int, str | None]
"""Rows inserted, rows deleted, the digest as 16 hex digits."""


class SinkWriter(ABC):
    """Receives the changes of one sink in order, on the thread of its actor. `state` is stored at each barrier, and
    `restore`d, with the last committed one, before the first change."""

    def __init__(self) -> None:
        self.inserted = self.deleted = 0

    @abstractmethod
    def write(self, chunk: StreamChunk) -> None:
        """Deliver the visible changes of a chunk."""

    @property
    def state(self) -> SinkState:
        return self.inserted, self.deleted, None

    def restore(self, state: SinkState) -> None:
        self.inserted, self.deleted, _ = state


class BlackholeWriter(SinkWriter):
    """Counts changes."""

    def write(self, chunk: StreamChunk) -> None:
        ops = chunk.ops if chunk.visibility is None else chunk.ops[chunk.visibility.astype(bool)]
        deleted = int((ops & Op.DELETE).sum())
        self.inserted += len(ops) - deleted
        self.deleted += deleted


class DigestWriter(SinkWriter):
    """Adds up the digests of changes."""

    def __init__(self) -> None:
        super().__init__()
        self._digest = 0

    def write(self, chunk: StreamChunk) -> None:
        inserted, deleted, digest = change_digest(chunk)
        self.inserted += inserted
        self.deleted += deleted
        self._digest = (self._digest + digest) & MASK

    @property
    def state(self) -> SinkState:
        return self.inserted, self.deleted, f"{self._digest:016x}"

    def restore(self, state: SinkState) -> None:
        super().restore(state)
        self._digest = int(state[2] or "0", 16)


SINKS: Mapping[str, type[SinkWriter]] = {"digest": DigestWriter, "blackhole": BlackholeWriter}


def open_sink(options: Mapping[str, str]) -> SinkWriter:
    """The writer that a sink's options name. UnknownConnector; ConnectorError for an option that it does not have."""
    name = options.get(CONNECTOR_OPTION, "")
    if name not in SINKS:
        raise UnknownConnector(name, set(SINKS))
    for option in options.keys() - {CONNECTOR_OPTION}:
        raise ConnectorError(name, f"a {name} sink has no option {option!r}")
    return SINKS[name]()
