"""UploadRegistry and UploadTable: the names of the files that a process writes, and their protection from vacuum.

A name begins with a prefix whose row is in the meta store before the first file under it is written, so that vacuum,
which lists objects before it reads rows, sees for every file either the row or its commit. While the row is valid
vacuum keeps the files under it, committed or not. An expired row is deleted by whatever acts on its expiry. Its owner,
if it lives, writes it again with its next renewal: files that were tombstoned meanwhile can no longer be committed, by
name; the rest is protected again. Names are used once. A prefix is used for a few minutes, and its row is deleted when
no file under it is being written: a file whose end is never reported keeps only files of the same prefix.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from hummock.epoch import Clock, monotonic_seconds
from hummock.errors import MetaStoreError, OutcomeUnknown, PreconditionFailed
from hummock.meta.records import UPLOADS, Upload, decode, encode, lease_key, upload_key
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta_client import HummockMetaClient
from hummock.object_store.base import NAME_PREFIX_DIGITS, RandomBytes, mint_sstable_name, name_prefix
from hummock.options import MetaOptions

PREFIX_SECONDS = 300.0      # how long one prefix is used for new names


class UploadRegistry:
    """The names of the files that one node writes. The renewal of the node's lease renews its rows too.

    Thread safe.
    """

    def __init__(self, client: HummockMetaClient, node: str, random_bytes: RandomBytes = os.urandom,
                 monotonic: Callable[[], float] = monotonic_seconds,
                 is_read: Callable[[str], bool] = lambda name: False):
        self._client, self._node = client, node
        self._random_bytes, self._monotonic = random_bytes, monotonic
        self._lock = threading.Lock()
        self._is_read = is_read
        self._on_their_way: dict[str, set[str]] = {}    # names in use, by registered prefix
        self._given_up: set[str] = set()                # those of them that only running reads still need
        self._prefix: str | None = None                 # of the next name
        self._serves_until = 0.0

    def mint(self) -> str:
        """A name under a registered prefix. Raises `MetaStoreError` where none can be registered."""
        retired: list[str] = []
        with self._lock:
            if self._prefix is None or self._monotonic() >= self._serves_until:
                retired = self._begin_prefix()
            assert self._prefix is not None
            name = mint_sstable_name(self._random_bytes, self._prefix)
            self._on_their_way[self._prefix].add(name)
        self._release(retired)
        return name

    @contextmanager
    def prefixes(self, count: int) -> Iterator[tuple[str, ...]]:
        """Registered prefixes for names that other processes generate; released when the block ends."""
        prefixes = tuple(self._random_bytes(NAME_PREFIX_DIGITS // 2).hex() for _ in range(count))
        self._client.register_upload(self._node, *prefixes)
        try:
            yield prefixes
        finally:
            self._client.release_upload(self._node, *prefixes)

    def renew(self) -> None:
        """Renews the rows, independently of the lease's renewal."""
        self._client.renew_upload(self._node)

    def settle(self, names: Iterable[str] = ()) -> None:
        """Ends the registration of these files, which are in a version or unused; and of released files that no running
        read needs any more.
        """
        with self._lock:
            unread = {name for name in self._given_up if not self._is_read(name)}
            self._given_up -= unread
            for name in (*names, *unread):
                self._on_their_way.get(name_prefix(name), set()).discard(name)
            retired = self._retired()
        self._release(retired)

    def release(self) -> None:
        """Releases every file that is not settled; files that are still read, once that has ended. The next name begins
        a new prefix.
        """
        with self._lock:
            self._given_up.update(*self._on_their_way.values())
            self._prefix = None
        self.settle()

    def _begin_prefix(self) -> list[str]:
        """Registers the prefix of the next name; returns the prefixes that are no longer needed."""
        prefix = self._random_bytes(NAME_PREFIX_DIGITS // 2).hex()
        self._client.register_upload(self._node, prefix)
        self._on_their_way[prefix] = set()
        self._prefix, self._serves_until = prefix, self._monotonic() + PREFIX_SECONDS
        return self._retired()

    def _retired(self) -> list[str]:
        """Removes and returns the prefixes that are no longer used and have no file in use."""
        retired = [prefix for prefix, names in self._on_their_way.items() if not names and prefix != self._prefix]
        for prefix in retired:
            del self._on_their_way[prefix]
        return retired

    def _release(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            self._client.release_upload(self._node, prefix)


class UploadTable:
    """The prefixes that nodes of this process have registered, kept consistent with their rows.

    Thread safe; its lock is held during the transactions that write rows.
    """

    def __init__(self, meta_store: MetaStore, clock: Clock, options: MetaOptions, random_bytes: RandomBytes):
        self._meta_store, self._clock, self._options = meta_store, clock, options
        self._holder = random_bytes(16).hex()
        self._lock = threading.Lock()
        self._rows: dict[str, Upload] = {}      # by prefix

    def register(self, node: str, prefixes: Sequence[str]) -> None:
        """Creates the rows of `prefixes`. Raises `MetaStoreError` if another process ever used one."""
        lease_key(node)
        keys = list(map(upload_key, prefixes))
        with self._lock:
            upload = Upload(node, self._holder, self._expiry())
            self._write(MetaOperations(require=dict.fromkeys(keys), put=dict.fromkeys(keys, encode(upload))))
            self._rows.update(dict.fromkeys(prefixes, upload))

    def renew(self, node: str) -> None:
        """Renews every row of the node."""
        with self._lock:
            mine = {prefix: replace(upload, expires_ms=self._expiry())
                    for prefix, upload in self._rows.items() if upload.node == node}
            if mine:
                self._write(MetaOperations(put={upload_key(prefix): encode(row) for prefix, row in mine.items()}))
                self._rows.update(mine)

    def release(self, node: str, prefixes: Sequence[str] | None = None) -> None:
        """Deletes the rows of `prefixes` (None: every row of the node); a row that cannot be deleted expires."""
        with self._lock:
            gone = [held for held, upload in self._rows.items()
                    if upload.node == node and (prefixes is None or held in prefixes)]
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
        """Runs the transaction, repeated while its outcome is unknown: only this process writes these rows."""
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
    """Every row by prefix, valid or expired."""
    return {key.removeprefix(UPLOADS): decode(Upload, key, row) for key, row in meta_store.list(UPLOADS)}
