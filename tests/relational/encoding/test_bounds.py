"""Decoders do not read past the end of their input, which ends right before an unreadable page."""

import ctypes
import mmap

import numpy as np
import pyarrow as pa
import pytest

from relational.encoding import KeyEncoder, ValueEncoder
from relational.errors import EncodingError
from tests.relational.random_rows import ALL, ORDERS, columns_of, mutated, random_rows

PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module")
def readable_end():
    """The first address after readable memory; a read at or above it is a segmentation fault."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.mmap(None, 5 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert libc.mprotect(start + 4 * PAGE, PAGE, 0) == 0
    return start + 4 * PAGE


def at_readable_end(readable_end, raw):
    """A binary column of one value that ends at the end of readable memory."""
    raw = raw[: 4 * PAGE]
    ctypes.memmove(readable_end - len(raw), raw, len(raw))
    offsets = pa.py_buffer(np.array([0, len(raw)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.foreign_buffer(readable_end - len(raw), len(raw))])


@pytest.mark.parametrize("data_type", ALL, ids=str)
def test_no_decoder_reads_behind_the_end(data_type, readable_end, rng):
    encoders = [KeyEncoder([data_type], [order]) for order in ORDERS] + [ValueEncoder([data_type])]
    for encoder in encoders:
        rows = list(encoder.encode(columns_of([data_type], random_rows(rng, [data_type], 10))))
        for raw in rows:
            for cut in (raw[: rng.randrange(len(raw) + 1)], raw[:-1], raw, *(mutated(rng, raw) for _ in range(10))):
                try:
                    encoder.decode(at_readable_end(readable_end, cut))
                except EncodingError:
                    continue
