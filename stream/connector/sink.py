"""Sinks: where the changes of a query go.

Two sinks keep what they deliver within the store, in the one row of their table, which is written at each barrier in
the epoch of the changes, so that both are committed or both are lost:

    digest      the digest of relational/chunk/change_digest.pyx over all rows delivered, which equal streams share
    blackhole   the numbers of rows only: for measurements, and to run a query for the errors that it counts

All others deliver to the outside after the commit [R36], from the log of the sink (`sink_log`), by a thread that is no
actor (`stream/sink_delivery.py`) [R27]. Such a sink is one class, a SinkTarget; how to write one is in CONTRIBUTING.md,
and what every target promises is checked by tests/support/suites/sink_suite.py.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from relational.chunk import Op
from relational.chunk.change_digest import change_digest
from stream.connector.base import CONNECTOR_OPTION
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError, UnknownConnector

if TYPE_CHECKING:
    import pyarrow as pa

    from hummock.epoch import EpochPair
    from relational.chunk import StreamChunk
    from relational.types import Schema

MASK = (1 << 64) - 1
SinkState = tuple[int, int, str | None]
"""Rows inserted, rows deleted, the digest as 16 hex digits."""
LOG_BYTES_OPTION = "log_bytes"
"""Of changes that are committed and not delivered: what happens beyond it, `when_full` says."""
WHEN_FULL_OPTION = "when_full"
"""fail: the sink is set aside, as any job that fails; wait: the sources of its query are not read meanwhile."""
INTERVAL_OPTION = "interval_ms"
"""Committed changes are delivered together until so much time has passed."""
LOG_OPTIONS = (LOG_BYTES_OPTION, WHEN_FULL_OPTION, INTERVAL_OPTION)
FAIL, WAIT = "fail", "wait"
DEFAULT_LOG_BYTES = 256 << 20


class SinkWriter(ABC):
    """Receives the changes of one sink in order, on the thread of its actor. `state` is stored at each barrier, and
    `restore`d, with the last committed one, before the first change."""

    def __init__(self) -> None:
        self.inserted = self.deleted = 0

    def begin(self, epoch: EpochPair) -> None:  # noqa: B027  most writers have no tables of their own
        """At the first barrier."""

    @abstractmethod
    def write(self, chunk: StreamChunk) -> None:
        """Deliver the visible changes of a chunk."""

    def end_epoch(self, epoch: EpochPair, *, is_checkpoint: bool) -> None:  # noqa: B027
        """At a barrier: commit what was written in the epoch that ends. ConnectorError fails the sink's job."""

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


STORED_SINKS: Mapping[str, type[SinkWriter]] = {"digest": DigestWriter, "blackhole": BlackholeWriter}


class SinkIdentity(NamedTuple):
    """The name of a sink, and the id of its job, which no other sink of the store ever has."""

    name: str
    job_id: int


class SinkTarget(ABC):
    """The external end of a sink. Used by one thread, which may wait in it for as long as it takes."""

    @classmethod
    def check_schema(cls, schema: Schema) -> None:
        """ConnectorError for columns that the target cannot take."""
        del schema  # most targets take all types

    @abstractmethod
    def deliver(self, epoch: int, changes: Iterator[pa.RecordBatch]) -> None:
        """Deliver all changes up to `epoch` since the last call: the columns of the query in its order, and `_op`, the
        ops as uint8 (see `Op`). Everything is durable at the target when this returns.

        After an error, and after the death of the process, it is called again with the same epoch and the same changes,
        in batches that may be cut otherwise: a target to which a repeated delivery makes a difference recognises it by
        the epoch. Errors of any type are shown and retried."""

    def close(self) -> None:  # noqa: B027  most targets hold nothing
        """Release the resources of the target."""


TargetFactory: TypeAlias = "Callable[[Mapping[str, str], SinkIdentity], SinkTarget]"

_FACTORIES: dict[str, TargetFactory] = {}
OWN_TARGETS = {
    "arrow": "stream.connector.arrow_sink:ArrowTarget",
    "parquet": "stream.connector.parquet_sink:ParquetTarget",
}
"""Targets of this package, name -> module:object; each is imported when a sink first names it."""


def register_sink(name: str, factory: TargetFactory) -> None:
    """Registers `factory(options, identity)` for `CREATE SINK … WITH (connector = name, …)`; replaces an earlier one.
    It raises ConnectorError for invalid options, and connects to nothing before the first delivery."""
    _FACTORIES[name] = factory


class LogLimits(NamedTuple):
    """How much a sink's log may hold, and for how long changes are collected."""

    log_bytes: int = DEFAULT_LOG_BYTES
    waits: bool = False
    interval_ms: int = 0


def open_stored_sink(options: Mapping[str, str]) -> SinkWriter:
    """The writer of a sink that keeps its state within the store. ConnectorError for an option that it does not have.
    REQUIRES that the options name one of STORED_SINKS."""
    name = options[CONNECTOR_OPTION]
    for option in options.keys() - {CONNECTOR_OPTION}:
        raise ConnectorError(name, f"a {name} sink has no option {option!r}")
    return STORED_SINKS[name]()


def open_target(options: Mapping[str, str], identity: SinkIdentity) -> SinkTarget:
    """The target that a sink's options name. UnknownConnector, ConnectorError."""
    return _factory(options)({name: value for name, value in options.items()
                              if name not in (CONNECTOR_OPTION, *LOG_OPTIONS)}, identity)


def check_target(options: Mapping[str, str], identity: SinkIdentity, schema: Schema) -> LogLimits:
    """The limits of the log of a sink. UnknownConnector; ConnectorError for invalid options, or columns that the target
    cannot take."""
    target = open_target(options, identity)
    target.check_schema(schema)
    target.close()
    name = options.get(CONNECTOR_OPTION, "")
    values = OptionValues(name, {key: value for key, value in options.items() if key in LOG_OPTIONS}, LOG_OPTIONS)
    return LogLimits(
        values.integer(LOG_BYTES_OPTION, DEFAULT_LOG_BYTES, 1, 1 << 50),
        values.choice(WHEN_FULL_OPTION, FAIL, (FAIL, WAIT)) == WAIT,
        values.integer(INTERVAL_OPTION, 0, 0, 1 << 40),
    )


def _factory(options: Mapping[str, str]) -> TargetFactory:
    name = options.get(CONNECTOR_OPTION, "")
    if name in _FACTORIES:
        return _FACTORIES[name]
    if name not in OWN_TARGETS:
        raise UnknownConnector(name, {*STORED_SINKS, *_FACTORIES, *OWN_TARGETS})
    module, attribute = OWN_TARGETS[name].split(":")
    factory: TargetFactory = getattr(importlib.import_module(module), attribute)
    return factory
