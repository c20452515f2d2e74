"""The session of a shell."""

from __future__ import annotations

from collections.abc import Callable

from hummock.errors import StoreNotFound, WriterRunning
from stream.cli.shell.options import Access
from stream.errors import ReadOnlySession
from stream.session.connect import MEMORY, connect
from stream.session.reader import ReaderSession
from stream.session.session import Session

HINTS: dict[type[BaseException], str] = {
    StoreNotFound: "with --create the store is made",
    WriterRunning: "without --write it is read beside that process; with --take-over that process ends",
    ReadOnlySession: "with --write the shell takes changes, if no other process does",
}
"""What the command offers where an error says what Python does."""


def hint_of(error: BaseException) -> str:
    """A line about the options that help, or nothing."""
    hint = HINTS.get(type(error))
    return "" if hint is None else f"\n{hint}"


def open_session(url: str, access: Access, warn: Callable[[str], None]) -> ReaderSession:
    """A session on `url`; warns of jobs that are set aside. If the connector of a table is not registered in this
    process sources are paused, so that the rows that there are can be read."""
    session = _connect(url, access)
    failed = session.failed_jobs
    if isinstance(session, Session) and any(failure.is_retried for failure in failed):
        session.abandon()
        session = _connect(url, access, sources_paused=True)
        warn("sources are paused: the connector of one of them failed")
    for failure in failed:
        if failure.follows is None:
            warn(f"set aside: {failure.reason}; SHOW JOBS tells more")
    if session.metrics_url is not None:
        warn(f"metrics at {session.metrics_url}")
    return session


def _connect(url: str, access: Access, *, sources_paused: bool = False) -> ReaderSession:
    if not access.writes and url != MEMORY:
        return connect(
            url,
            role="reader",
            meta=access.meta,
            accept_rollback=access.accept_rollback,
            allow_user_functions=access.allow_user_functions,
            metrics_port=access.metrics_port,
            replacement_scans=False,
        )
    return connect(
        url,
        create=access.creates,
        take_over=access.takes_over,
        meta=access.meta,
        accept_rollback=access.accept_rollback,
        allow_user_functions=access.allow_user_functions,
        sources_paused=sources_paused,
        metrics_port=access.metrics_port,
        replacement_scans=False,
    )
