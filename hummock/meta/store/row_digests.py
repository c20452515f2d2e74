"""Tamper and corruption detection for a database: a digest in each row, and one summary row over all of them.

    meta(key, value, digest)      digest = blake2b-128 of (key size u32 LE | key | value)
    summary(0, format, store_id, serial, rows, total, digest)
                                  total = sum of row digests mod 2**128, LE
    format                        1, or 2: in SQLite, `meta` is a table with row ids
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from hummock.errors import FormatTooNew, MetaStoreCorrupt
from hummock.meta.store.base import MetaOperations

FORMAT = 2
DIGEST_BYTES = 16
TOTAL_MODULUS = 1 << (8 * DIGEST_BYTES)
COLUMNS = "id, format, store_id, serial, rows, total, digest"


@dataclass(frozen=True, slots=True)
class DatabaseDigest:
    """Digest over all rows, as of transaction `serial`."""

    store_id: bytes
    serial: int = 0
    rows: int = 0
    total: int = 0
    format: int = 1

    def row(self) -> tuple[int, int, bytes, int, int, bytes, bytes]:
        total = self.total.to_bytes(DIGEST_BYTES, "little")
        return (0, self.format, self.store_id, self.serial, self.rows, total, self.digest)

    @property
    def digest(self) -> bytes:
        text = f"{self.format}|{self.store_id.hex()}|{self.serial}|{self.rows}|{self.total}"
        return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()

    def after(self, operations: MetaOperations, held: Iterable[tuple[str, bytes]]) -> DatabaseDigest:
        """The digest after the operations; `held` are the current rows of their keys."""
        rows, total = self.rows, self.total
        for key, value in held:
            rows -= 1
            total -= int.from_bytes(row_digest(key, value), "little")
        for key, value in operations.put.items():
            rows += 1
            total += int.from_bytes(row_digest(key, value), "little")
        return DatabaseDigest(self.store_id, self.serial + 1, rows, total % TOTAL_MODULUS, self.format)

    def check_rows(self, store: str, digests: Iterable[bytes]) -> None:
        """Raises `MetaStoreCorrupt` unless these are the digests of all rows."""
        count = total = 0
        for digest in digests:
            count += 1
            total += int.from_bytes(digest, "little")
        if (count, total % TOTAL_MODULUS) != (self.rows, self.total):
            raise MetaStoreCorrupt(store, "rows", f"{self.rows} rows, sum {self.total:x}",
                                   f"{count} rows, sum {total % TOTAL_MODULUS:x}")

    @staticmethod
    def of_row(row: tuple | None, store: str) -> DatabaseDigest:
        """The verified digest in a summary row. Raises `MetaStoreCorrupt`."""
        if row is None or [type(part) for part in row] != [int, int, bytes, int, int, bytes, bytes]:
            raise MetaStoreCorrupt(store, "summary row", "a summary", row)
        if row[1] > FORMAT:
            raise FormatTooNew(store, row[1], FORMAT)
        summary = DatabaseDigest(row[2], row[3], row[4], int.from_bytes(row[5], "little"), row[1])
        if summary.row() != row:
            raise MetaStoreCorrupt(store, "summary digest", summary.digest.hex(), row[-1].hex())
        return summary


def row_digest(key: str, value: bytes) -> bytes:
    """blake2b-128 of (key size u32 LE | key | value)."""
    name = key.encode()
    digest = blake2b(len(name).to_bytes(4, "little"), digest_size=DIGEST_BYTES)
    digest.update(name)
    digest.update(value)
    return digest.digest()


def checked_value(row: tuple, store: str) -> bytes:
    """The value of a (key, value, digest) after verification. Raises `MetaStoreCorrupt`."""
    key, value, digest = row
    if type(key) is not str or type(value) is not bytes or type(digest) is not bytes:
        raise MetaStoreCorrupt(store, f"types of row {key!r}")
    if (expected := row_digest(key, value)) != digest:
        raise MetaStoreCorrupt(store, f"digest of row {key!r}", expected.hex(), digest.hex())
    return value
