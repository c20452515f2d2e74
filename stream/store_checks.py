"""Checks of the doctor on what the upper layers keep in a store: the catalog, cursors and the inbox."""

from __future__ import annotations

from collections.abc import Iterator

from hummock.base.json_fields import MALFORMED
from hummock.doctor.finding import Check, Examined, Finding
from hummock.errors import FormatTooNew, HummockError, MetaStoreCorrupt, ObjectNotFound
from hummock.meta.records import Lease, decode, lease_key
from hummock.object_store.base import sstable_data_path
from relational.catalog.manager import CatalogManager
from relational.catalog.records import CATALOG_PREFIX
from relational.catalog.snapshot import CatalogSnapshot
from relational.inbox.records import REQUESTS, InboxRequest
from stream.plan.serialize import stream_plan_from_text
from stream.session.change_cursor import CURSORS, NODE, CursorRow

MINUTE_MS = 60_000
REQUEST_MS = 10 * MINUTE_MS
"""After which a request that is not answered is a finding."""


def check_catalog(store: Examined) -> Iterator[Finding]:
    """Objects of a catalog that cannot be read, and jobs that do not run."""
    known = _catalog(store)
    for failure in known.failed.values():
        table = known.tables[failure.job_id]
        follows = "" if failure.follows is None else f", since job {failure.follows} failed"
        name = known.name_of(table)
        yield Finding.warning("jobs", f"{name} is set aside since epoch {failure.since}{follows}: {failure.reason}",
                              f"see to the cause, then ALTER {table.kind.upper()} {name} RESUME")
    for job in known.jobs():
        record = known.job_record(job.id)
        if record is not None:
            try:
                stream_plan_from_text(record.plan, known.tables.__getitem__)
            except FormatTooNew as error:
                yield Finding.error("format", f"the job of {known.name_of(job)}: {error}",
                                    "open the store with the release that wrote it")
            except MALFORMED as error:
                yield Finding.error("catalog", f"the plan of {known.name_of(job)} cannot be read: {error!r}",
                                    "drop the view, and create it again")


def check_cursors(store: Examined) -> Iterator[Finding]:
    """Cursors of change feeds that keep old epochs, have lost theirs, or follow nothing."""
    known = _catalog(store)
    for key, row in store.meta_store.list(CURSORS):
        name = key.removeprefix(CURSORS)
        remedy = f"let its follower go on, or drop it: Session.drop_cursor({name!r}), DROP SUBSCRIPTION {name}"
        try:
            cursor = CursorRow.from_bytes(key, row)
        except HummockError as error:
            yield Finding.error("cursors", str(error), f"drop it: Session.drop_cursor({name!r})")
            continue
        behind_ms = store.held_ms(cursor.epoch or cursor.target)
        table = known.tables.get(cursor.table)
        if table is None:
            yield Finding.warning("cursors", f"{name} follows table {cursor.table}, which was dropped",
                                  f"drop it: Session.drop_cursor({name!r})")
        elif not _is_held(store, name):
            yield Finding.warning("cursors", f"{name} of {known.name_of(table)} was not used for "
                                  f"{cursor.retention_ms / MINUTE_MS:,.1f} minutes: its epoch is not kept any more",
                                  f"drop it and begin anew: Session.drop_cursor({name!r})")
        elif behind_ms > store.options.old_ms:
            yield Finding.warning("cursors", f"{name} of {known.name_of(table)} is {behind_ms // MINUTE_MS:,} "
                                  "minutes behind, and keeps all that changed in the store since", remedy)


def check_inbox(store: Examined) -> Iterator[Finding]:
    """Requests of other processes that nobody carries out, or that cannot be carried out."""
    for key, row in store.meta_store.list(REQUESTS):
        try:
            request = InboxRequest.from_bytes(key, row)
        except HummockError as error:
            yield Finding.error("inbox", str(error), "open the store with the release that wrote it")
            continue
        lost = [part.name for part in request.objects if not _is_there(store, part.name)]
        if lost:
            yield Finding.error("inbox", f"request {request.request_id} for {request.table} names "
                                f"{len(lost)} objects that are gone, such as {sstable_data_path(lost[0])}",
                                "send its rows again: the next session answers that it cannot carry it out")
        elif store.now_ms - request.created_ms > REQUEST_MS:
            yield Finding.warning("inbox", f"request {request.request_id} for {request.table} waits for "
                                  f"{(store.now_ms - request.created_ms) // MINUTE_MS:,} minutes",
                                  f"run a session that serves the store: hummock stream --store {store.place}")


CHECKS: tuple[Check, ...] = (check_catalog, check_cursors, check_inbox)


def _catalog(store: Examined) -> CatalogSnapshot:
    """Raises MetaStoreCorrupt for rows that are none of a catalog."""
    try:
        return CatalogManager(store.meta_store).snapshot
    except MALFORMED as error:
        raise MetaStoreCorrupt(CATALOG_PREFIX, "rows", "those of a catalog", repr(error)) from error


def _is_held(store: Examined, name: str) -> bool:
    """Whether the epoch of a cursor stays readable."""
    key = lease_key(NODE + name)
    row = store.meta_store.get(key)
    return row is not None and decode(Lease, key, row).expires_ms > store.now_ms


def _is_there(store: Examined, name: str) -> bool:
    try:
        store.objects.head(sstable_data_path(name))
    except ObjectNotFound:
        return False
    return True
