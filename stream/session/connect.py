"""connect: opens a session on a store, which runs its jobs or reads beside the one that does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from hummock.errors import InvalidOption
from hummock.object_store.url import store_url
from hummock.options import CompactionOptions, StorageOptions, check_known
from stream.options import SessionKeywords, StreamOptions
from stream.playground import PlaygroundOptions, open_playground
from stream.serving import open_serving_node
from stream.session.reader import ReaderSession
from stream.session.session import Session, check_spark_session

if TYPE_CHECKING:
    from stream.spark.job import SparkSession

MEMORY = "memory://"
ROLES = ("writer", "reader")
PLACES = "a directory by its path, memory://, file:///directory, s3://bucket/prefix"
NO_STORE = {
    "": f"{PLACES}; '.' is the working directory",
    "memory": f"{PLACES}; a directory of this name is './memory'",
    "file": f"{PLACES}; a directory of this name is './file'",
}
"""What is neither a path nor a URL, and what can be meant."""


@overload
def connect(
    url: str | PathLike[str],
    *,
    role: Literal["reader"],
    meta: str | None = None,
    accept_rollback: bool = False,
    **options: Unpack[SessionKeywords],
) -> ReaderSession: ...


@overload
def connect(
    url: str | PathLike[str],
    *,
    role: Literal["writer"] = "writer",
    create: bool = False,
    take_over: bool = False,
    meta: str | None = None,
    accept_rollback: bool = False,
    engine: SparkSession | None = None,
    **options: Unpack[SessionKeywords],
) -> Session: ...


def connect(
    url: str | PathLike[str],
    *,
    role: str = "writer",
    create: bool = False,
    take_over: bool = False,
    meta: str | None = None,
    accept_rollback: bool = False,
    engine: SparkSession | None = None,
    **options: Unpack[SessionKeywords],
) -> ReaderSession:
    """A session on `memory://` (a new store, deleted with the session), a directory, by its path or as
    `file:///directory`, or a bucket, `s3://...`.

        db = stream.connect("shop", create=True)
        reader = stream.connect("shop", role="reader")      # in any process, beside the first one

    `create`: make a new store if there is none there; otherwise StoreNotFound, and nothing is made. A store has one
    session that writes: WriterRunning names the process that has it, unless `take_over`; then that one ends with Fenced
    at its next commit. `role="reader"`: a ReaderSession, of which any number read the committed rows beside the writer.

    `meta`, the location of the metadata, and `accept_rollback` are those of `hummock.open`. `options` are the fields of
    StreamOptions, StorageOptions and CompactionOptions by name; UnknownOption for another name. An epoch stays
    readable while a snapshot, cursor, bulk load or backfill, or a reader of another process pins it, and for
    `history_ms` more, 0 by default; for other epochs `at` and `AS OF` raise EpochTooOld.

    `engine`: a Spark session, whose executors keep the views, epoch by epoch, over a store that they reach; by default
    this process does. Either continues what the other has committed. ExecutorUnfit if its executors lack this package.
    """
    if role not in ROLES:
        raise InvalidOption("role", role, f"one of {', '.join(ROLES)}")
    if fspath(url) in NO_STORE:
        raise InvalidOption("url", fspath(url), NO_STORE[fspath(url)])
    url, chosen = store_url(url), playground_options(options)
    if role == "reader":
        for name, value in (("engine", engine), ("create", create or None), ("take_over", take_over or None)):
            if value is not None:
                raise InvalidOption(name, value, 'left out with role="reader", which changes nothing')
        return ReaderSession(open_serving_node(url, chosen, meta=meta, accept_rollback=accept_rollback))
    worker = None
    if engine is not None:
        check_spark_session("engine", engine)
        from stream.spark.job import SparkEpochTasks
        from stream.spark.spark_worker import SparkWorker

        tasks = SparkEpochTasks(engine)
        tasks.check(url)
        worker = partial(SparkWorker, tasks=tasks)
    return Session(
        open_playground(
            url,
            chosen,
            meta=meta,
            accept_rollback=accept_rollback,
            engine=worker,
            create=create or url == MEMORY,
            take_over=take_over,
        )
    )


def playground_options(options: Mapping[str, Any]) -> PlaygroundOptions:
    """Distributes options by name to the option classes of the layers."""
    kinds = (StreamOptions, CompactionOptions, StorageOptions)
    check_known(options, *kinds)
    parts = {kind: {field.name for field in fields(kind)} for kind in kinds}
    given = {kind: {name: options[name] for name in names & options.keys()} for kind, names in parts.items()}
    return PlaygroundOptions(
        StreamOptions(**given[StreamOptions]),
        StorageOptions(**given[StorageOptions]),
        CompactionOptions(**given[CompactionOptions]),
    )
