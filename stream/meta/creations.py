"""Creations: jobs that are being created, and the callers that wait for them [R26].

A new view, index or sink is committed with its first barrier, as CREATING. Its actors read the existing rows over many
epochs; recoveries, and processes that open the store later, continue. The commit of the epoch that holds the last of
these rows makes it CREATED: until then it cannot be read, and no other job can read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from relational.catalog.manager import CatalogManager
from relational.catalog.snapshot import CatalogSnapshot
from relational.errors import NotFound
from stream.errors import JobCreating
from stream.meta.job_failures import JobFailures

POLL_SECONDS = 0.25  # in case the session ends in a way that nothing reports


class Creations:
    """Thread safe. `check_alive()` raises what ended the session."""

    def __init__(self, catalog: CatalogManager, failures: JobFailures, check_alive: Callable[[], None]) -> None:
        self._catalog = catalog
        self._failures = failures
        self._check_alive = check_alive
        self._changed = threading.Condition()

    def notify(self) -> None:
        """The catalog may have changed, or a job was set aside."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, job_id: int, name: str) -> None:
        """Returns once the job is created. JobFailed if it was set aside, NotFound if it was dropped, and what ended
        the session."""
        with self._changed:
            while True:
                known = self._catalog.snapshot
                if job_id not in known.tables:
                    raise NotFound(f"{name!r} was dropped while it was created", name=name)
                if job_id not in known.creating:
                    return
                failed = self._failures.errors()
                if job_id in failed:
                    raise failed[job_id]
                self._check_alive()
                self._changed.wait(POLL_SECONDS)

    def check(self, table_ids: Iterable[int]) -> None:
        """JobCreating if one of the tables is that of a job that is being created."""
        check_created(self._catalog.snapshot, table_ids)


def check_created(known: CatalogSnapshot, table_ids: Iterable[int]) -> None:
    """JobCreating if one of the tables is that of a job that is being created."""
    for table_id in table_ids:
        if table_id in known.creating:
            raise JobCreating(str(known.name_of(known.tables[table_id])))
