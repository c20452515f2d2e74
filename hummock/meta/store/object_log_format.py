"""The objects of a log in a bucket, as bytes.

A record is one transaction, a checkpoint all rows as of a record. Each contains its store and its number, and the
digest of the record before it (a checkpoint: of its own record), so that a record that was damaged, moved, or belongs
to another store or another history is refused.

    magic, 8 bytes        b"HMKLOG01" record, b"HMKCHK01" checkpoint
    store id, 16 bytes    serial, u64 LE     previous digest, 16 bytes    mark, 16 bytes (a checkpoint: zeros)
    deleted, u32 LE       put, u32 LE
    deleted times         key size u16 LE | key
    put times             key size u16 LE | value size u32 LE | key | value        a checkpoint: ascending keys
    digest, 16 bytes      blake2b-128 of all before
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from hummock.base.json_fields import check_magic
from hummock.errors import MetaStoreCorrupt, MetaStoreError
from hummock.meta.store.base import check_key

RECORD_MAGIC = b"HMKLOG01"
CHECKPOINT_MAGIC = b"HMKCHK01"
DIGEST_BYTES = 16
HEADER = struct.Struct("<8s16sQ16s16sII")
NO_MARK = bytes(16)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """Transaction number `serial` of a store; `mark` distinguishes two writers' tries for one number."""

    store_id: bytes
    serial: int
    previous: bytes
    mark: bytes = NO_MARK
    delete: tuple[str, ...] = ()
    put: Mapping[str, bytes] = field(default_factory=dict)
    magic: bytes = RECORD_MAGIC

    def encode(self) -> bytes:
        parts = [HEADER.pack(self.magic, self.store_id, self.serial, self.previous, self.mark, len(self.delete),
                             len(self.put))]
        for key in self.delete:
            parts += [len(key).to_bytes(2, "little"), key.encode()]
        for key, value in self.put.items():
            parts += [len(key).to_bytes(2, "little"), len(value).to_bytes(4, "little"), key.encode(), value]
        digest = blake2b(digest_size=DIGEST_BYTES)
        for part in parts:
            digest.update(part)
        return b"".join((*parts, digest.digest()))

    @staticmethod
    def decode(data: bytes, name: str, magic: bytes = RECORD_MAGIC) -> tuple[LogRecord, bytes]:
        """The record in object `name`, and its digest. Raises `MetaStoreCorrupt`."""
        body, digest = memoryview(data)[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        if len(body) < HEADER.size or blake2b(body, digest_size=DIGEST_BYTES).digest() != digest:
            raise MetaStoreCorrupt(name, "digest", None, digest.hex())
        found, store_id, serial, previous, mark, deletes, puts = HEADER.unpack_from(body)
        if not check_magic(name, found, magic):
            raise MetaStoreCorrupt(name, "magic", magic, found)
        rows = _Rows(body, name)
        delete = tuple(rows.key(rows.number(2)) for _ in range(deletes))
        put = {}
        for _ in range(puts):
            key_size, value_size = rows.number(2), rows.number(4)
            key = rows.key(key_size)
            put[key] = rows.read(value_size)
        if rows.at != len(body) or len(put) != puts:
            raise MetaStoreCorrupt(name, "rows", len(body), rows.at)
        return LogRecord(store_id, serial, previous, mark, delete, put, magic), digest


class _Rows:
    """Parses keys and values from the bytes after the header; trusts no length."""

    def __init__(self, body: memoryview, name: str):
        self._body, self._name = body, name
        self.at = HEADER.size

    def read(self, size: int) -> bytes:
        if size > len(self._body) - self.at:
            raise MetaStoreCorrupt(self._name, "rows", f"{size} bytes at {self.at}", len(self._body))
        self.at += size
        return bytes(self._body[self.at - size:self.at])

    def number(self, size: int) -> int:
        return int.from_bytes(self.read(size), "little")

    def key(self, size: int) -> str:
        try:
            return check_key(self.read(size).decode("ascii"))
        except (UnicodeError, MetaStoreError) as error:
            raise MetaStoreCorrupt(self._name, "key", "printable ASCII", str(error)) from error
