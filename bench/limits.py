"""Upper bounds in C for what the benches measure: what one core does with the same rows and nothing else to do.

No store, no files, no errors but damaged blocks (limits.h has the form of blocks and rows). Compiled when first used,
for the processor of this machine. Each class prepares its buffers once, so that what is measured needs no new memory;
all buffers are in huge pages where the system has them, and go on for SLACK_BYTES after their end.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, byref, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SLACK_BYTES = 256 << 10         # of which a scan needs three blocks of 64 KB
PAGE_BYTES, HEAD_BYTES = 48, 16
FILTER_BITS, LINE_BITS = 10, 512
Columns = tuple[pa.BinaryArray, pa.BinaryArray]     # keys and values
SOURCES = ("limits.c", "limits_get.c", "limits_rows.c")


class Limit:
    """What a bench notes of these where it names an engine."""

    name, settings = "limit in C", "gcc -O3 -march=native, one core, memory to memory, nothing but the work itself"


@cache
def library() -> ctypes.CDLL:
    folder = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "limits.so"
        subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", *(folder / name for name in SOURCES),
                        "-o", built], check=True)
        loaded = ctypes.CDLL(str(built))
    for name in ("merge_rows", "scan", "get_many"):
        getattr(loaded, name).restype = c_uint64
    return loaded


def room(size: int) -> np.ndarray:
    """Zeroed bytes, aligned to pages, and the slack after them."""
    pages = mmap.mmap(-1, size + SLACK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8, size)


class Codec(ctypes.Structure):
    """The two functions of lz4, from the library inside its wheel."""

    _fields_ = [("compress", c_void_p), ("decompress", c_void_p)]


@cache
def codec(name: str) -> Any:
    """What the C functions take: for "lz4" a pointer to its functions, for "none" a null pointer."""
    if name == "none":
        return None
    found = importlib.util.find_spec("lz4.block._block")
    assert found is not None and found.origin is not None
    lz4 = ctypes.CDLL(found.origin)
    addresses = (ctypes.cast(function, c_void_p) for function in (lz4.LZ4_compress_fast, lz4.LZ4_decompress_safe))
    return ctypes.pointer(Codec(*addresses))


class Rows(ctypes.Structure):
    """Two Arrow columns, as `rows` of limits.h has them; `buffers` keeps their memory."""

    _fields_ = [(name, c_void_p) for name in ("keys", "values", "valid", "key_at", "value_at")] + [("rows", c_uint64)]
    buffers: dict[str, np.ndarray]

    @classmethod
    def with_room(cls, rows: int, key_bytes: int, value_bytes: int) -> Rows:
        """Columns to be written; all valid, no rows yet."""
        sizes = {"keys": key_bytes, "values": value_bytes, "valid": (rows + 7) // 8,
                 "key_at": 4 * (rows + 1), "value_at": 4 * (rows + 1)}
        made = cls()
        made.buffers = {name: room(size) for name, size in sizes.items()}
        made.buffers["valid"][:] = 0xFF
        for name, buffer in made.buffers.items():
            setattr(made, name, buffer.ctypes.data)
        return made

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> Rows:
        """A copy of the columns."""
        parts = {"key": binary_parts(keys), "value": binary_parts(values)}
        made = cls.with_room(len(keys), *(len(data) for _, data in parts.values()))
        for name, (offsets, data) in parts.items():
            made.buffers[f"{name}_at"].view(np.int32)[:] = offsets
            made.buffers[f"{name}s"][:] = data
        made.buffers["valid"][:] = np.packbits(np.asarray(values.is_valid()), bitorder="little")
        made.rows = len(keys)
        if not values.null_count:
            made.valid = None
        return made

    def column(self, name: str, rows: int) -> pa.BinaryArray:
        """The first rows of "key" or "value", not copied."""
        valid = pa.py_buffer(self.buffers["valid"]) if name == "value" else None
        parts = (pa.py_buffer(self.buffers[each]) for each in (f"{name}_at", f"{name}s"))
        return pa.BinaryArray.from_buffers(pa.binary(), rows, [valid, *parts])


def binary_parts(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets, from 0, and bytes of a column of binaries or texts, which may be a slice."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends - ends[0], np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


class Stored(ctypes.Structure):
    """A run of blocks and its filter, `stored` of limits.h, with room for so much."""

    _fields_ = [("blocks", c_void_p), *((name, c_uint64) for name in ("bytes", "block_count", "rows", "most_rows")),
                ("filter", c_void_p), ("filter_lines", c_uint64), ("skip", c_uint64)]

    @classmethod
    def with_room(cls, rows: int, row_bytes: int) -> Stored:
        made = cls()
        made.buffers = room(row_bytes + row_bytes // 64 + 9 * rows), room(rows * FILTER_BITS // 8 + LINE_BITS // 8)
        made.blocks, made.filter = (buffer.ctypes.data for buffer in made.buffers)
        made.filter_lines = rows * FILTER_BITS // LINE_BITS + 1
        return made


def stored(columns: Columns, codec_name: str) -> Stored:
    """Sorted rows as a run of blocks, deletes included, without a filter."""
    out = Stored.with_room(len(columns[0]), sum(column.nbytes for column in columns))
    library().store_rows(byref(Rows.of(*columns)), codec(codec_name), byref(out))
    return out


class Merge:
    """Merges sorted columns, the newest first, into one pair of columns, by a loser tree; all versions stay."""

    def __init__(self, parts: Sequence[Columns]):
        runs = [Rows.of(*part) for part in parts]
        self.inputs, self.sources = (Rows * len(runs))(*runs), runs
        self.out = Rows.with_room(*(sum(sizes) for sizes in zip(
            *((run.rows, len(run.buffers["keys"]), len(run.buffers["values"])) for run in runs), strict=True)))

    def run(self) -> int:
        return int(library().merge_rows(self.inputs, len(self.inputs), byref(self.out)))


class Compaction:
    """Merges runs of blocks, the newest first, into a run with a filter; the newest rows that are no deletes stay."""

    def __init__(self, runs: Sequence[Stored], codec_name: str):
        self.inputs, self.sources, self.codec = (Stored * len(runs))(*runs), runs, codec(codec_name)
        self.out = Stored.with_room(sum(run.rows for run in runs), sum(len(run.buffers[0]) for run in runs))

    def run(self) -> Stored:
        library().compact(self.inputs, len(self.inputs), self.codec, byref(self.out))
        return self.out


class Scan:
    """Reads a run of blocks, without deletes, into columns of `key_bytes` and `value_bytes`."""

    def __init__(self, source: Stored, codec_name: str, key_bytes: int, value_bytes: int):
        self.source, self.codec = source, codec(codec_name)
        self.out = Rows.with_room(source.rows, key_bytes, value_bytes)

    def run(self) -> int:
        return int(library().scan(byref(self.source), self.codec, byref(self.out)))


class Index(ctypes.Structure):
    """`lookup_index` of limits_get.c."""

    _fields_ = [("run", POINTER(Stored)), ("pages", c_void_p), ("heads", c_void_p), ("table", c_void_p),
                ("buckets", c_uint64)]


class Lookup:
    """Batched lookups in a run of blocks without a codec, of up to `most` keys and `value_bytes` at a time."""

    def __init__(self, source: Stored, most: int, value_bytes: int):
        buckets = 1 << int(2 * source.most_rows - 1).bit_length()
        self.source = source
        self.buffers = [room(source.block_count * size) for size in (PAGE_BYTES, HEAD_BYTES, 4 * buckets)]
        self.index = Index(ctypes.pointer(source), *(buffer.ctypes.data for buffer in self.buffers), buckets)
        self.out = Rows.with_room(most, 0, value_bytes)
        library().build_index(byref(self.index))

    def run(self, asked: Rows) -> int:
        """How many of the keys are there; their values are in `out`."""
        return int(library().get_many(byref(self.index), byref(asked), byref(self.out)))


class TableRows(ctypes.Structure):
    """Columns (bigint, double, varchar), as `table_rows` of limits_rows.c has them."""

    _fields_ = [(name, c_void_p) for name in ("bigints", "doubles", "texts", "text_at")] + [("rows", c_uint64)]
    buffers: dict[str, np.ndarray]

    @classmethod
    def with_room(cls, rows: int, text_bytes: int) -> TableRows:
        sizes = {"bigints": 8 * rows, "doubles": 8 * rows, "texts": text_bytes, "text_at": 4 * (rows + 1)}
        made = cls(rows=rows)
        made.buffers = {name: room(size) for name, size in sizes.items()}
        for name, buffer in made.buffers.items():
            setattr(made, name, buffer.ctypes.data)
        return made

    @classmethod
    def of(cls, bigints: pa.Array, doubles: pa.Array, texts: pa.Array) -> TableRows:
        offsets, data = binary_parts(texts)
        made = cls.with_room(len(bigints), len(data))
        columns = {"bigints": bigints.to_numpy(), "doubles": doubles.to_numpy(), "texts": data, "text_at": offsets}
        for name, column in columns.items():
            made.buffers[name].view(column.dtype)[:] = column
        return made

    def columns(self) -> dict[str, pa.Array]:
        rows, buffers = self.rows, {name: pa.py_buffer(buffer) for name, buffer in self.buffers.items()}
        return {"bigint": pa.Array.from_buffers(pa.int64(), rows, [None, buffers["bigints"]]),
                "double": pa.Array.from_buffers(pa.float64(), rows, [None, buffers["doubles"]]),
                "varchar": pa.Array.from_buffers(pa.utf8(), rows, [None, buffers["text_at"], buffers["texts"]])}


class RowCodec:
    """Rows to bytes and back, in the store's formats: "key" (bigint, varchar), "value" (bigint, double, varchar)."""

    def __init__(self, form: str, source: TableRows):
        names = (f"encode_{form}s", f"decode_{form}s")
        self.encode_rows, self.decode_rows = (getattr(library(), name) for name in names)
        self.source = source
        self.target = TableRows.with_room(source.rows, len(source.buffers["texts"]))
        size = 24 * source.rows + 2 * len(source.buffers["texts"])
        self.offsets, self.data = room(4 * (source.rows + 1)), room(size)
        self.addresses = c_void_p(self.data.ctypes.data), c_void_p(self.offsets.ctypes.data)

    def encode(self) -> None:
        self.encode_rows(byref(self.source), *self.addresses)

    def decode(self) -> None:
        self.decode_rows(*self.addresses, byref(self.target))

    def encoded(self) -> pa.BinaryArray:
        return pa.BinaryArray.from_buffers(
            pa.binary(), self.source.rows, [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)])


class GroupTable(ctypes.Structure):
    """`group_table` of limits_rows.c."""

    _fields_ = [("slots", c_void_p), ("mask", c_uint64), ("groups", c_uint64)]


class Aggregation:
    """count(*) and sum(v) by k, both bigint, in an open table of at least twice `groups` slots."""

    def __init__(self, groups: int):
        slots = 1 << (2 * groups - 1).bit_length()
        self.slots = room(32 * slots)
        self.table = GroupTable(self.slots.ctypes.data, slots - 1, 0)

    def apply(self, keys: np.ndarray, numbers: np.ndarray, ops: np.ndarray) -> None:
        """Rows whose `ops` is 1 are taken back."""
        library().aggregate(byref(self.table), *(c_void_p(column.ctypes.data) for column in (keys, numbers, ops)),
                            c_uint64(len(keys)))

    def groups(self) -> np.ndarray:
        """int64[groups, 3]: key, count and sum, by key."""
        slots = self.slots.view(np.int64).reshape(-1, 4)
        found = slots[slots[:, 3] == 1, :3]
        return found[np.argsort(found[:, 0])]
