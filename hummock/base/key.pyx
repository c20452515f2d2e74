"""Keys for Python: construction of user keys, and ranges of user keys.

Only this module knows the layout of a user key: `table_id u32 BE | vnode u16 BE | table key`, so that the rows of a
table are adjacent, and within it those of a vnode.
"""

from dataclasses import dataclass

from hummock.errors import InvalidKey

USER_KEY_PREFIX_BYTES = 6           # table id and vnode
MAX_TABLE_ID = 0xFFFF_FFFF


def user_key(table_id, vnode, key) -> bytes:    # a parameter declared int would accept 1.5 as 1
    """`table_id u32 BE | vnode u16 BE | key`. Raises InvalidKey if a part has a wrong type or does not fit."""
    try:
        return table_id.to_bytes(TABLE_ID_BYTES, "big") + vnode.to_bytes(2, "big") + key
    except (AttributeError, OverflowError, TypeError):
        raise InvalidKey(table_id, vnode, key) from None


def table_id_of(key: bytes) -> int:
    """The table id of a user key; a shorter key counts as padded with zeros."""
    return int.from_bytes(key[:TABLE_ID_BYTES].ljust(TABLE_ID_BYTES, b"\0"), "big")


def vnode_of(key: bytes) -> int:
    """The vnode of a user key; a shorter key counts as padded with zeros."""
    return int.from_bytes(key[4:6].ljust(2, b"\0"), "big")


def successor_of_prefix(prefix: bytes) -> bytes | None:
    """The first byte string after all that begin with `prefix`; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    last = len(kept) - 1
    return kept[:last] + bytes([kept[last] + 1]) if kept else None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The user keys k with start <= k < end, in byte order; `end` None: unbounded."""

    start: bytes = b""
    end: bytes | None = None

    @classmethod
    def table(cls, table_id) -> KeyRange:
        """Every key of a table."""
        return cls.prefix(user_key(table_id, 0, b"")[:TABLE_ID_BYTES])

    @classmethod
    def vnode(cls, table_id, vnode) -> KeyRange:
        """Every key of one vnode of a table."""
        return cls.prefix(user_key(table_id, vnode, b""))

    @classmethod
    def prefix(cls, prefix: bytes) -> KeyRange:
        """Every user key that begins with `prefix`."""
        return cls(prefix, successor_of_prefix(prefix))

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.end <= self.start

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)
