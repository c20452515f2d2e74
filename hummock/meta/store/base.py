"""The meta store: one ordered map of names to bytes, changed by transactions with preconditions.

It holds all metadata that processes share. Transactions are serialisable and durable when they return; a read sees
whole transactions only. Stores are thread safe; a handle belongs to the process that opened it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from hummock.epoch import wall_clock_ms
from hummock.errors import MetaStoreError

KEY_BYTES_LIMIT = 512
VALUE_BYTES_LIMIT = 512 << 20


@dataclass(frozen=True, slots=True)
class MetaOperations:
    """What one transaction requires, puts and deletes; parts from several managers are joined by `+`.

    `require` maps a key to the value it must hold, None for absent. A key is put or deleted, not both.
    Raises `MetaStoreError` for a malformed key or value and for parts that contradict each other.
    """

    require: Mapping[str, bytes | None] = field(default_factory=dict)
    put: Mapping[str, bytes] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in (*self.require, *self.put, *self.delete):
            check_key(key)
        for key, value in self.put.items():
            if not isinstance(value, bytes) or len(value) > VALUE_BYTES_LIMIT:
                raise MetaStoreError(f"the value of meta key {key!r} is not bytes within the limit")
        for key in self.delete:
            if key in self.put:
                raise MetaStoreError(f"one transaction would put and delete meta key {key!r}")

    def __add__(self, other: MetaOperations) -> MetaOperations:
        for kind, mine, others in (("require", self.require, other.require), ("put", self.put, other.put)):
            for key in mine.keys() & others.keys():
                if mine[key] != others[key]:
                    raise MetaStoreError(f"two parts of one transaction {kind} meta key {key!r} differently")
        for key in (*self.delete, *other.delete):
            if key in self.put or key in other.put:
                raise MetaStoreError(f"one transaction would put and delete meta key {key!r}")
        joined = object.__new__(MetaOperations)         # whose keys and values were checked in the parts
        object.__setattr__(joined, "require", {**self.require, **other.require})
        object.__setattr__(joined, "put", {**self.put, **other.put})
        object.__setattr__(joined, "delete", tuple(dict.fromkeys((*self.delete, *other.delete))))
        return joined

    def __bool__(self) -> bool:
        return bool(self.require or self.put or self.delete)


NONE = MetaOperations()


class MetaStore(ABC):
    """Contract of all meta stores, tested by `tests/support/suites/meta_store_suite.py`."""

    @property
    @abstractmethod
    def url(self) -> str:
        """URL for messages."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value, or None if the key is absent."""

    @abstractmethod
    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        """All (key, value) pairs whose key begins with `prefix`, ascending, from one snapshot."""

    @abstractmethod
    def transaction(self, operations: MetaOperations) -> None:
        """Checks every precondition, then deletes, then puts: atomic, and durable on return.

        Raises `PreconditionFailed` naming the key, `MetaStoreBusy` (nothing was written either), and `OutcomeUnknown`
        where the outcome is unknown and the caller must read again.
        """

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Inside, reads of this thread may share one snapshot, not older than the block: a saving where each is a
        request.

        Conclusions from them are checked by the preconditions of a transaction.
        """
        yield

    def check_present(self) -> None:    # noqa: B027  a store whose reads notice that themselves has nothing to check
        """Raises `MetaStoreEmptied` or `MetaStoreReplaced` if other processes find no store, or another one, where this
        one was opened. Each transaction checks that; it costs no request.
        """

    def now_ms(self) -> int:
        """The clock by which leases expire: one for all processes that share the store, in milliseconds since 1970."""
        return wall_clock_ms()

    def close(self) -> None:    # noqa: B027  a store in memory holds nothing open
        """Releases the resources of the store."""


def check_key(key: str) -> str:
    """`key` itself. Raises `MetaStoreError` unless it is 1 to 512 bytes of printable ASCII."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_BYTES_LIMIT:
        raise MetaStoreError(f"meta key {key!r} is not a string of 1 to {KEY_BYTES_LIMIT} characters")
    if not (key.isascii() and key.isprintable()):
        raise MetaStoreError(f"meta key {key!r} is not printable ASCII")
    return key
