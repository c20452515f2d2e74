"""UploadTable: the name prefixes that nodes of this process have registered, kept in step with their rows.

The row of a prefix is there before the first file under it is written, so that vacuum, which lists objects before
it reads rows, sees for every file either the row or what became of it. A row that ran out is deleted by whoever
acts on that. Its owner, if it lives, makes it again with its next renewal: what was given up meanwhile may no
longer be committed, by name; the rest is protected again.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

from hummock.epoch import Clock
from hummock.errors import MetaStoreError, OutcomeUnknown, PreconditionFailed
from hummock.meta.records import UPLOADS, Upload, decode, encode, lease_key, upload_key
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.object_store.base import RandomBytes
from hummock.options import MetaOptions


class UploadTable:
    """Thread safe; its lock is held through the transactions that write rows."""

    def __init__(self, meta_store: MetaStore, clock: Clock, options: MetaOptions, random_bytes: RandomBytes):
        self._meta_store, self._clock, self._options = meta_store, clock, options
        self._holder = random_bytes(16).hex()
        self._lock = threading.Lock()
        self._rows: dict[str, Upload] = {}      # by prefix

    def register(self, node: str, prefix: str) -> None:
        """Makes the row of `prefix`. Raises `MetaStoreError` where it was ever taken by another."""
        lease_key(node)
        key = upload_key(prefix)
        with self._lock:
            upload = Upload(node, self._holder, self._expiry())
            self._write(MetaOperations(require={key: None}, put={key: encode(upload)}))
            self._rows[prefix] = upload

    def renew(self, node: str) -> None:
        """Prolongs every row of the node."""
        with self._lock:
            mine = {prefix: replace(upload, expires_ms=self._expiry())
                    for prefix, upload in self._rows.items() if upload.node == node}
            if mine:
                self._write(MetaOperations(put={upload_key(prefix): encode(row) for prefix, row in mine.items()}))
                self._rows.update(mine)

    def release(self, node: str, prefix: str | None = None) -> None:
        """Deletes the row of `prefix` (None: every row of the node); one that cannot be deleted will run out."""
        with self._lock:
            gone = [held for held, upload in self._rows.items()
                    if upload.node == node and prefix in (None, held)]
            for held in gone:
                del self._rows[held]
            if gone:
                with suppress(MetaStoreError):
                    self._meta_store.transaction(MetaOperations(delete=tuple(map(upload_key, gone))))

    def release_all(self) -> None:
        for node in {upload.node for upload in self._rows.values()}:
            self.release(node)

    def _expiry(self) -> int:
        return self._clock() + self._options.lease_ms

    def _write(self, operations: MetaOperations) -> None:
        """The transaction, repeated while its end is not seen: its rows are this process's alone."""
        unknown: OutcomeUnknown | None = None
        for _ in range(self._options.transaction_attempts):
            try:
                self._meta_store.transaction(operations)
            except OutcomeUnknown as error:
                unknown = error
            except PreconditionFailed as error:
                if unknown is not None and error.got == operations.put[error.key]:
                    return
                raise MetaStoreError(f"another process uses the prefix of {error.key!r}") from error
            else:
                return
        assert unknown is not None
        raise unknown


def read_uploads(meta_store: MetaStore) -> dict[str, Upload]:
    """Every row by prefix, in force or not."""
    return {key.removeprefix(UPLOADS): decode(Upload, key, row) for key, row in meta_store.list(UPLOADS)}
