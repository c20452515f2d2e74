"""Rows that the benches share: made from a seed, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
