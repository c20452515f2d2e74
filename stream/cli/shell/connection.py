"""The session of a shell."""

from __future__ import annotations

from collections.abc import Callable

from stream.cli.shell.options import Access
from stream.session.session import Session, connect


def open_session(url: str, access: Access, warn: Callable[[str], None]) -> Session:
    """A session on `url`; warns of jobs that are set aside. If the connector of a table is not registered in this
    process sources are paused, so that the rows that there are can be read."""
    session = _connect(url, access)
    failed = session.failed_jobs
    if any(failure.is_retried for failure in failed):
        session.abandon()
        session = _connect(url, access, sources_paused=True)
        warn("sources are paused: the connector of one of them failed")
    for failure in failed:
        if failure.follows is None:
            warn(f"set aside: {failure.reason}; SHOW JOBS tells more")
    return session


def _connect(url: str, access: Access, sources_paused: bool = False) -> Session:
    return connect(
        url,
        meta=access.meta,
        accept_rollback=access.accept_rollback,
        allow_user_functions=access.allow_user_functions,
        sources_paused=sources_paused,
    )
