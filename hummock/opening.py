"""Opens a store by its URL: composes object store, meta store and roles of one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from typing import Unpack
from urllib.parse import urlsplit

from hummock.base.key import KeyRange
from hummock.base.logs import Event
from hummock.errors import HummockError, InvalidOption, ObjectStoreRefused
from hummock.maintenance import Maintenance
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import VacuumReport
from hummock.metrics import Metrics
from hummock.object_store import directory_of, open_object_store
from hummock.object_store.url import store_url
from hummock.options import (
    CompactionOptions,
    MetaOptions,
    RetryOptions,
    StorageKeywords,
    StorageOptions,
    VacuumOptions,
    check_known,
)
from hummock.state_store import check_key_range
from hummock.store.stats import COUNTED
from hummock.store.storage import HummockStorage

ROLES = ("writer", "reader")
READ_ONLY = ("its file system is read-only, and who reads registers that, so that no file goes away meanwhile: copy "
             "the directory to where it can be written, or put a writable layer over it (overlayfs)")
log = logging.getLogger(__name__)


class MaintainedStorage(HummockStorage):
    """A HummockStorage with compaction and vacuum in the background; `maintenance` is None for a reader, and where
    other processes do that work.
    """

    maintenance: Maintenance | None = None
    metrics: Metrics            # of all parts of this store; hummock.metrics.serve_metrics exports them

    def compact(self, key_range: KeyRange | None = None, timeout: float | None = None) -> bool:
        """Compacts the range (None: everything) into the last level; False after `timeout` seconds.

        Only committed data is compacted. Raises HummockError in a store without maintenance, and why the range could
        not be compacted, as the Corruption that names the damaged object.
        """
        if key_range is not None:
            check_key_range(key_range)
        return self._maintained().compact(key_range, timeout)

    def wait_compacted(self, timeout: float | None = None) -> bool:
        """Waits until nothing is left to compact; False after `timeout` seconds. Raises the Corruption that leaves
        something.
        """
        return self._maintained().wait_compacted(timeout)

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Deletes all files that nothing needs, orphans included; `dry_run` only reports them.

        Without running reads and writes, exactly the files of the newest version remain.
        """
        maintenance = self._maintained()
        self._local.settle()
        return maintenance.vacuum(dry_run=dry_run)

    def _maintained(self) -> Maintenance:
        self._open_base()
        if self.maintenance is None:
            cure = 'role="writer"' if self.session is None else "compaction=True, or leave that work to others"
            raise HummockError(f"this store was opened without maintenance: open it with {cure}")
        return self.maintenance


@contextmanager
def media_explained(url: str) -> Iterator[None]:
    """Replaces an error, while a store is opened, by one that says what to do if it is on read-only media."""
    try:
        yield
    except HummockError as error:
        if urlsplit(url).scheme == "file":
            with suppress(OSError):
                if os.statvfs(directory_of(url)).f_flag & os.ST_RDONLY:
                    raise ObjectStoreRefused(url, READ_ONLY) from error
        raise


def open_storage(url: str | PathLike[str], *, role: str | None = None, meta: str | None = None,
                 meta_options: MetaOptions | None = None, compaction: CompactionOptions | bool = True,
                 vacuum: VacuumOptions | None = None, retry: RetryOptions | None = None, accept_rollback: bool = False,
                 **options: Unpack[StorageKeywords]) -> MaintainedStorage:
    """Opens the store at `url`: `memory://` (a new one each time), `file:///directory`, a path, or a remote one.

    As "reader", the default, opening changes nothing at the URL, and only data known to be committed is read.
    `role="writer"` creates the store if it does not exist and claims the writer role from any other process, whose next
    commit is then refused; a store in memory has no other process, so there it is the default. `meta` selects the meta
    store, as in `open_meta_store`. A writer compacts and vacuums in the background, as configured by `compaction` and
    `vacuum`, unless `compaction` is False: then other processes must. `retry` configures retries of object-store calls.
    `options` are the fields of StorageOptions; UnknownOption for another name. Commits of other processes become
    visible within `refresh_ms`. A store that was restored from an older copy raises MetaStoreRolledBack unless
    `accept_rollback` is set. Closing the store closes all its parts, and abandons running compactions. StoreNotFound if
    there is no store to read.

        store = hummock.open("memory://")
        epoch = hummock.EpochGenerator(last=store.committed_epoch).next()
        key = hummock.user_key(table_id=1, vnode=0, key=b"k")
        store.ingest_batch(hummock.WriteBatch([(key, b"v")]), epoch)
        store.commit(epoch)
        store.get(key, epoch)                   # b'v'
        store.close()
    """
    url = store_url(url)
    role = ("writer" if url == "memory://" else "reader") if role is None else role
    _check_keywords(role, compaction)
    check_known(options, StorageOptions)
    storage_options, metrics = StorageOptions(**options), Metrics()
    with media_explained(url), ExitStack() as opened:
        object_store = open_object_store(url, metrics=metrics, retry=retry, create=role == "writer")
        opened.callback(object_store.close)
        meta_store = open_meta_store(url, meta, object_store=object_store, create=role == "writer",
                                     accept_rollback=accept_rollback, options=meta_options)
        opened.callback(meta_store.close)
        shape = compaction if isinstance(compaction, CompactionOptions) else CompactionOptions()
        manager = HummockManager(meta_store, object_store, options=meta_options, compaction=shape, metrics=metrics)
        opened.callback(manager.close)
        session = manager.claim_writer() if role == "writer" else None
        maintenance = None
        if session is not None and compaction is not False:
            maintenance = Maintenance(manager, meta_store, object_store, vacuum=vacuum)
            opened.callback(maintenance.close)
        resources = opened.pop_all()
    try:
        storage = MaintainedStorage(manager, object_store, storage_options, session=session, metrics=metrics,
                                    committed_only=session is None,
                                    compaction=None if compaction is False else shape, on_close=resources.close)
    except BaseException:
        resources.close()
        raise
    storage.metrics = metrics
    metrics.watch(storage.stats, COUNTED)
    storage.follow_versions()
    if maintenance is not None:
        storage.maintenance = maintenance.start()
    log.info(Event("store opened", url=url, role=role, version=storage.version.id, epoch=storage.committed_epoch))
    return storage


def _check_keywords(role: object, compaction: object) -> None:
    if role not in ROLES:
        raise InvalidOption("role", role, f"one of {', '.join(ROLES)}")
    if not isinstance(compaction, CompactionOptions | bool):
        raise InvalidOption("compaction", compaction, "CompactionOptions, True or False")
