"""Rows that the benches share: made from a seed, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.encoding.key.encoder import KeyEncoder
from relational.types import DataType

SEED = 20130101
KEY_BYTES = 16
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class KeyValueRows:
    """Batches, each sorted by key: 16 B keys (table 1, vnode 0, an even number) and half-random 100 B values."""

    batches: list[tuple[pa.BinaryArray, pa.BinaryArray]]
    present: pa.BinaryArray  # 100,000 keys that are there, in random order
    absent: pa.BinaryArray  # as many that are not, inside the key range
    rows: int


def fixed_binary(data: np.ndarray) -> pa.BinaryArray:
    """Rows of a uint8 matrix as an Arrow binary array."""
    rows, width = data.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def keys(ids: np.ndarray) -> pa.BinaryArray:
    """16 B user keys: table_id u32 | vnode u16 | two bytes | id u64, all big endian."""
    matrix = np.zeros((len(ids), KEY_BYTES), dtype=np.uint8)
    matrix[:, 3], matrix[:, 7] = 1, 1
    matrix[:, 8:] = ids.astype(">u8").view(np.uint8).reshape(-1, 8)
    return fixed_binary(matrix)


def values(rows: int, rng: np.random.Generator) -> pa.BinaryArray:
    matrix = np.zeros((rows, VALUE_BYTES), dtype=np.uint8)
    matrix[:, : VALUE_BYTES // 2] = rng.integers(0, 256, size=(rows, VALUE_BYTES // 2), dtype=np.uint8)
    return fixed_binary(matrix)


def key_value_rows(rows: int, batch_rows: int, *, shuffled: bool) -> KeyValueRows:
    rng = np.random.default_rng(SEED)
    ids = np.arange(rows, dtype=np.uint64) * 2
    order = rng.permutation(ids) if shuffled else ids
    parts = [np.sort(order[start : start + batch_rows]) for start in range(0, rows, batch_rows)]
    batches = [(keys(part), values(len(part), rng)) for part in parts]
    probes = rng.choice(ids, size=min(rows, 100_000), replace=False)
    return KeyValueRows(batches, keys(probes), keys(probes + 1), rows)


@dataclass(frozen=True, slots=True)
class RealRows:
    """Rows as a table with key (bigint, varchar) has them: 256 vnodes, values of 20 to 400 bytes, epochs that each
    write random new keys and delete some older ones (null values)."""

    epochs: list[tuple[pa.BinaryArray, pa.BinaryArray]]  # each sorted by key
    present: pa.BinaryArray  # the keys that are left, in random order
    absent: pa.BinaryArray  # as many that were never there, among them
    bytes: int  # of keys and values that are left


def real_keys(ids: np.ndarray) -> pa.BinaryArray:
    """User keys of rows (id, text of 3 to 28 letters) in the vnode that a hash of the id gives."""
    widths = ids % 26 + 3
    ends = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
    letters = (np.repeat(ids * 31 - ends[:-1], widths) + np.arange(ends[-1])) % 26 + 97
    texts = pa.Array.from_buffers(
        pa.utf8(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(letters.astype(np.uint8))]
    )
    vnodes = (ids * np.int64(0x9E3779B1) >> 7) % 256
    encoder = KeyEncoder([DataType.parse("BIGINT"), DataType.parse("VARCHAR")])
    columns = [pa.array(ids), texts]
    return encoder.encode(columns, table_id=1, vnodes=vnodes.astype(np.uint16), rows=len(ids)).to_arrow()


def real_values(rows: int, rng: np.random.Generator, deleted: np.ndarray) -> pa.BinaryArray:
    """Of 20 to 400 bytes, half random; null where `deleted`."""
    widths = np.where(deleted, 0, rng.integers(20, 401, rows))
    ends = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
    data = rng.integers(0, 256, ends[-1], dtype=np.uint8)
    data[::2] = 0
    valid = pa.py_buffer(np.packbits(~deleted, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def real_rows(rows: int, *, epochs: int = 10, deleted_share: float = 0.05) -> RealRows:
    """`rows` operations, in `epochs` equal parts."""
    rng, each = np.random.default_rng(SEED), rows // epochs
    left = np.empty(0, np.int64)
    fresh = rng.permutation(np.arange(rows, dtype=np.int64) * 2)
    parts, written = [], 0
    for _ in range(epochs):
        deletes = min(int(each * deleted_share), len(left))
        chosen = rng.permutation(len(left))
        gone, left = left[chosen[:deletes]], left[chosen[deletes:]]
        new = fresh[written : written + each - deletes]
        written += len(new)
        left = np.concatenate([left, new])
        found = real_keys(np.concatenate([new, gone]))
        order = pc.sort_indices(found)
        values_ = real_values(each, rng, np.arange(each) >= len(new))
        parts.append((found.take(order), values_.take(order)))
    left = rng.permutation(left)
    present = real_keys(left)
    return RealRows(parts, present, real_keys(left + 1), present.nbytes + len(left) * 210)
