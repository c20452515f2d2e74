"""Filter policies: how the filter of a file is built from its key hashes.

The file's info contains the policy's name; a reader that does not know it, or lacks its package, reads the file without
a filter. A filter has no false negatives.
"""

from __future__ import annotations

import io
import math
import struct
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from hummock.base.extras import is_installed, require
from hummock.errors import Corruption, InvalidOption
from hummock.sstable.filter.bloom import BloomFilter, build_filter

if TYPE_CHECKING:
    from pybloom_live import BloomFilter as PlainBloomFilter

    from hummock.base.foreground import ForegroundWork


@runtime_checkable
class Filter(Protocol):
    """A loaded filter. `hash` is the 64-bit key hash of FORMAT.md."""

    size_bytes: int

    def contains(self, hash: int) -> bool: ...


class FilterPolicy(Protocol):
    """`build` is called once per file with uint64[n] hashes, in any order; `load` decodes its result."""

    name: str

    def build(self, hashes: np.ndarray) -> bytes: ...

    @staticmethod
    def load(data: bytes | memoryview, object_name: str) -> Filter | None: ...


class BlockedBloomPolicy:
    """The default: compiled, reads one cache line per key. While there is `foreground` work `build` pauses."""

    name = "blocked_bloom"

    def __init__(self, bits_per_key: int = 10, foreground: ForegroundWork | None = None):
        self.bits_per_key, self.foreground = bits_per_key, foreground

    def build(self, hashes: np.ndarray) -> bytes:
        return build_filter(hashes, self.bits_per_key, self.foreground)

    @staticmethod
    def load(data: bytes | memoryview, object_name: str) -> Filter:
        return BloomFilter.load(data, object_name)


class PybloomFilter:
    """A loaded filter of pybloom-live."""

    def __init__(self, filter: PlainBloomFilter, size_bytes: int):
        self._filter, self.size_bytes = filter, size_bytes

    def contains(self, hash: int) -> bool:
        return hash in self._filter


class PybloomFilterPolicy:
    """Standard Bloom filters by pybloom-live (extra `pybloom`), slow to build, without a pause for `foreground` work.
    ExtraMissing, except that a file is read without its filter.
    """

    name = "pybloom"

    def __init__(self, bits_per_key: int = 10, foreground: ForegroundWork | None = None):
        require("pybloom_live", "a pybloom filter")
        self.error_rate = min(0.5, math.exp(-bits_per_key * math.log(2) ** 2))

    def build(self, hashes: np.ndarray) -> bytes:
        from pybloom_live import BloomFilter as PlainBloomFilter

        filter = PlainBloomFilter(capacity=max(1, len(hashes)), error_rate=self.error_rate)
        for value in hashes.tolist():
            filter.add(value, skip_check=True)
        target = io.BytesIO()
        filter.tofile(target)
        return target.getvalue()

    @staticmethod
    def load(data: bytes | memoryview, object_name: str) -> Filter | None:
        if not is_installed("pybloom_live"):
            return None
        from pybloom_live import BloomFilter as PlainBloomFilter

        try:
            filter = PlainBloomFilter.fromfile(io.BytesIO(data), len(data))
        except (ValueError, OverflowError, struct.error) as error:
            raise Corruption(object_name, "filter", "a filter of pybloom-live", str(error)) from error
        if filter.num_slices < 1 or filter.bits_per_slice < 1:
            raise Corruption(object_name, "filter", "slices of bits", filter.num_slices)
        return PybloomFilter(filter, len(data))


class NoFilterPolicy:
    """No filter: every read whose key is in the file's range reads the file."""

    name = "none"

    def build(self, hashes: np.ndarray) -> bytes:
        return b""

    @staticmethod
    def load(data: bytes | memoryview, object_name: str) -> Filter | None:
        return None


POLICIES = (BlockedBloomPolicy, PybloomFilterPolicy)


def filter_policy(name: str, bits_per_key: int = 10, foreground: ForegroundWork | None = None) -> FilterPolicy:
    """The policy of that name, for writing beside `foreground` work. Raises InvalidOption for an unknown name."""
    if name == NoFilterPolicy.name:
        return NoFilterPolicy()
    for policy in POLICIES:
        if policy.name == name:
            return policy(bits_per_key, foreground)
    raise InvalidOption("filter_policy", name, f"one of {', '.join(p.name for p in POLICIES)}, none")


def load_filter(name: str, data: bytes | memoryview, object_name: str) -> Filter | None:
    """The filter built by the policy of that name; None if there is none or the name is unknown."""
    for policy in POLICIES:
        if policy.name == name and data:
            return policy.load(data, object_name)
    return None
