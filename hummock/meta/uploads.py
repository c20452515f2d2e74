"""UploadRegistry: where a process gets the names of the files that it writes.

A name begins with a prefix that the meta store knew before the name was handed out; while its row is in force,
vacuum leaves the files under it alone, committed or not. Names are used once. A prefix serves for a few minutes
and its row goes when no file under it is on its way: a file whose end is never told keeps only its neighbours.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from hummock.epoch import monotonic_seconds
from hummock.meta_client import HummockMetaClient
from hummock.object_store.base import NAME_PREFIX_DIGITS, RandomBytes, mint_sstable_name, name_prefix

PREFIX_SECONDS = 300.0      # how long one prefix serves


class UploadRegistry:
    """Names of one node. Thread safe. Whoever renews the node's lease keeps its rows in force too."""

    def __init__(self, client: HummockMetaClient, node: str, random_bytes: RandomBytes = os.urandom,
                 monotonic: Callable[[], float] = monotonic_seconds,
                 is_read: Callable[[str], bool] = lambda name: False):
        self._client, self._node = client, node
        self._random_bytes, self._monotonic = random_bytes, monotonic
        self._lock = threading.Lock()
        self._is_read = is_read
        self._on_their_way: dict[str, set[str]] = {}    # names by registered prefix
        self._given_up: set[str] = set()                # of these, what only reads that have begun still need
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
    def prefix(self) -> Iterator[str]:
        """A registered prefix for names that others mint and write; it is given back when the block ends."""
        prefix = self._random_bytes(NAME_PREFIX_DIGITS // 2).hex()
        self._client.register_upload(self._node, prefix)
        try:
            yield prefix
        finally:
            self._client.release_upload(self._node, prefix)

    def renew(self) -> None:
        """Keeps the rows in force, apart from the lease's renewal."""
        self._client.renew_upload(self._node)

    def settle(self, names: Iterable[str] = ()) -> None:
        """These files are in a version, or nothing: they need no registration any more. Neither do those that were
        given up and that nobody reads by now.
        """
        with self._lock:
            unread = {name for name in self._given_up if not self._is_read(name)}
            self._given_up -= unread
            for name in (*names, *unread):
                self._on_their_way.get(name_prefix(name), set()).discard(name)
            retired = self._retired()
        self._release(retired)

    def release(self) -> None:
        """Gives up every file that is not settled, what is still read once that has ended; the next name begins a new
        prefix.
        """
        with self._lock:
            self._given_up.update(*self._on_their_way.values())
            self._prefix = None
        self.settle()

    def _begin_prefix(self) -> list[str]:
        """Registers the prefix of the next name; the prefixes that nothing needs any more."""
        prefix = self._random_bytes(NAME_PREFIX_DIGITS // 2).hex()
        self._client.register_upload(self._node, prefix)
        self._on_their_way[prefix] = set()
        self._prefix, self._serves_until = prefix, self._monotonic() + PREFIX_SECONDS
        return self._retired()

    def _retired(self) -> list[str]:
        """Takes out the prefixes that serve no more and have no file on its way."""
        retired = [prefix for prefix, names in self._on_their_way.items() if not names and prefix != self._prefix]
        for prefix in retired:
            del self._on_their_way[prefix]
        return retired

    def _release(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            self._client.release_upload(self._node, prefix)
