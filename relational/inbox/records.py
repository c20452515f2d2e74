"""The rows of the inbox in the meta store: their keys, and their values as JSON with a format number.

    inbox/request/<id>              rows for a table, by the names of the objects that hold them
    inbox/answer/<id>               what became of a request
    inbox/writer/<table>/<name>     the newest batch of a streaming writer that is in a table, by the table's id

A client creates a request. From then on only the session that has the writer role changes these rows: the commit that
makes the rows of a request readable deletes the request and creates its answer, in one transaction. So a request that
is there was not carried out, and one that has an answer was, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar

from hummock.base.json_fields import MALFORMED, NAME_RULE, check_format, is_name, natural, word
from hummock.errors import InvalidOption, MetaStoreCorrupt
from relational.errors import BatchGap, CheckpointChanged
from relational.inbox.payload import PayloadObject

FORMAT = 1
REQUESTS, ANSWERS, WRITERS = "inbox/request/", "inbox/answer/", "inbox/writer/"
CHECKPOINT_CHARACTERS = 256
BATCH_LIMIT = 1 << 63
QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark's tasks and threads with the id of a streaming query, which is that of its checkpoint."""


class Outcome(StrEnum):
    """How a request ended."""

    WRITTEN = "written"         # its rows are committed
    REPEATED = "repeated"       # an earlier request had brought the same batch
    REFUSED = "refused"         # nothing of it was written


@dataclass(frozen=True, slots=True)
class WriterBatch:
    """Batch `batch_id` of the streaming writer `writer`, whose checkpoint has the id `checkpoint`."""

    writer: str
    checkpoint: str
    batch_id: int

    def check(self) -> None:
        """InvalidOption for a name, an id or a number that no row can hold."""
        if not is_name(self.writer):
            raise InvalidOption("writer", self.writer, NAME_RULE)
        if not isinstance(self.checkpoint, str) or not 0 < len(self.checkpoint) <= CHECKPOINT_CHARACTERS:
            raise InvalidOption("checkpoint", self.checkpoint, f"1 to {CHECKPOINT_CHARACTERS} characters")
        if type(self.batch_id) is not int or not 0 <= self.batch_id < BATCH_LIMIT:
            raise InvalidOption("batch_id", self.batch_id, "a number from 0 on")


@dataclass(frozen=True, slots=True)
class WriterPosition:
    """The newest batch of a streaming writer, with its `rows`, was committed at `epoch`, and all before it."""

    checkpoint: str
    batch_id: int
    epoch: int
    rows: int

    def to_bytes(self) -> bytes:
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, key: str, data: bytes) -> WriterPosition:
        """The inverse of `to_bytes`. Raises `MetaStoreCorrupt`."""
        return _decoded(key, data, lambda record: cls(word(record["checkpoint"]), natural(record["batch_id"]),
                                                      natural(record["epoch"]), natural(record["rows"])))


@dataclass(frozen=True, slots=True)
class InboxRequest:
    """Rows for the table named `table`, in the order of `objects`; `prefixes` are the registered prefixes of the names.
    After `expires_ms`, by the meta store's clock, it is refused.
    """

    request_id: str
    table: str
    objects: tuple[PayloadObject, ...]
    prefixes: tuple[str, ...]
    batch: WriterBatch | None
    created_ms: int
    expires_ms: int

    def to_bytes(self) -> bytes:
        record = asdict(self)
        del record["request_id"]
        return _dump(record)

    @classmethod
    def from_bytes(cls, key: str, data: bytes) -> InboxRequest:
        """The inverse of `to_bytes`; the key holds the id. Raises `MetaStoreCorrupt`, `FormatTooNew`."""
        def read(record: Mapping[str, Any]) -> InboxRequest:
            batch = record["batch"]
            known = None if batch is None else WriterBatch(word(batch["writer"]), word(batch["checkpoint"]),
                                                           natural(batch["batch_id"]))
            return cls(key.removeprefix(REQUESTS), word(record["table"]),
                       tuple(map(PayloadObject.from_json, _items(record["objects"]))),
                       tuple(map(word, _items(record["prefixes"]))),
                       known, natural(record["created_ms"]), natural(record["expires_ms"]))

        return _decoded(key, data, read)


@dataclass(frozen=True, slots=True)
class InboxAnswer:
    """The end of a request: its `rows`, before the table's conflict rule, are readable at `epoch`. If it was refused:
    the error's class and text, and of a batch that does not follow the newest one of its writer, that one as `known`.
    `rows` is 0 for a repeated batch that is not the writer's newest.
    """

    outcome: Outcome
    answered_ms: int
    rows: int = 0
    epoch: int = 0
    error: str = ""
    reason: str = ""
    known: WriterPosition | None = None

    def to_bytes(self) -> bytes:
        return _dump(asdict(self))

    @classmethod
    def from_bytes(cls, key: str, data: bytes) -> InboxAnswer:
        """The inverse of `to_bytes`. Raises `MetaStoreCorrupt`."""
        def read(record: Mapping[str, Any]) -> InboxAnswer:
            known = record["known"]
            return cls(Outcome(record["outcome"]), natural(record["answered_ms"]), natural(record["rows"]),
                       natural(record["epoch"]), word(record["error"]), word(record["reason"]),
                       None if known is None else WriterPosition(**known))

        return _decoded(key, data, read)


Record = TypeVar("Record")


def request_key(request_id: str) -> str:
    return REQUESTS + request_id


def answer_key(request_id: str) -> str:
    return ANSWERS + request_id


def writer_key(table_id: int, writer: str) -> str:
    return f"{WRITERS}{table_id}/{writer}"


def is_new_batch(position: WriterPosition | None, batch: WriterBatch, table: str) -> bool:
    """Whether the batch is to be written; False: it is in the table. The first batch of a writer may have any number.
    CheckpointChanged, BatchGap.
    """
    if position is None:
        return True
    if position.checkpoint != batch.checkpoint:
        raise CheckpointChanged(table, batch.writer, batch.checkpoint, position.checkpoint, position.batch_id)
    if batch.batch_id > position.batch_id + 1:
        raise BatchGap(table, batch.writer, batch.batch_id, position.batch_id)
    return batch.batch_id > position.batch_id


def _dump(record: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **record}, separators=(",", ":"), sort_keys=True).encode()


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"{str(value)[:80]!r} is no list")
    return value


def _decoded(key: str, data: bytes, read: Callable[[Mapping[str, Any]], Record]) -> Record:
    try:
        record = json.loads(data)
        check_format(key, record["format"], FORMAT)
        return read(record)
    except MALFORMED as error:
        raise MetaStoreCorrupt(key, "fields", "a row of the inbox", str(error)) from error
