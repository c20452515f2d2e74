"""SstableReader: one file with its info from the version, its meta and its cached blocks.

Meta and blocks are read on first use, each by one thread at a time: other threads wait for that read. Every byte is
checked before use, against digests stored elsewhere. Everything runs under the GIL and releases it only for reads and
for decoding many blocks.
"""

import threading

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

from hummock.errors import Corruption, DeadlineExceeded
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.sstable.filter.prefix_extractor import key_prefix
from hummock.sstable.meta import SstableMeta

from hummock.base.checksum cimport hash64
from hummock.base.key cimport Slice, head_of, slice_of
from hummock.columnar.buffer_pool cimport pool_acquire, pool_release
from hummock.sstable.block cimport Block
from hummock.sstable.cache.admission cimport CacheAdmission
from hummock.sstable.cache.block_cache cimport BlockCache, CacheSlot, FileSlots
from hummock.sstable.filter.bloom cimport BloomFilter
from hummock.sstable.filter.prefix_extractor cimport PrefixExtractor

META = -1
FLIGHT_WAIT_SECONDS = 120           # the object store's own limits end a read earlier
cdef Py_ssize_t GAP_BYTES = 64 << 10            # most unneeded bytes between two blocks fetched by one read
cdef Py_ssize_t RANGE_BYTES = 8 << 20           # most bytes of one read
cdef uint64_t MIXED = 0x9E3779B97F4A7C15        # hash multiplier: spreads neighbouring blocks


class Flight:
    """One read in progress, which other threads may wait for. A context manager for the reading thread."""

    __slots__ = ("done", "error", "flights", "keys", "result")

    def __init__(self, flights: dict, keys: list):
        self.flights, self.keys = flights, keys
        self.done, self.result, self.error = threading.Lock(), None, None
        self.done.acquire()

    def __enter__(self):
        for key in self.keys:
            self.flights[key] = self
        return self

    def __exit__(self, kind, error, trace):
        for key in self.keys:
            del self.flights[key]
        self.error = error
        self.done.release()

    def wait(self, path):
        """The result of the other thread's read, or its error."""
        if not self.done.acquire(timeout=FLIGHT_WAIT_SECONDS):
            raise DeadlineExceeded(path, f"another thread's read took {FLIGHT_WAIT_SECONDS} s", 1)
        self.done.release()
        if self.error is not None:
            raise self.error
        return self.result


cdef class OpenedSstable:

    def __cinit__(self, meta not None):
        self.meta, self.index = meta, meta.index
        if isinstance(meta.filter, BloomFilter):
            self.bloom = meta.filter
        else:
            self.other_filter = meta.filter

    cdef bint may_contain(self, uint64_t hash) except -1:
        if self.bloom is not None:
            return self.bloom.may_contain(hash)
        return self.other_filter is None or self.other_filter.contains(hash)


cdef class SstableReader:
    """Created by an SstableStore, one per file; shared by all views, iterators and threads."""

    def __init__(self, info, object_store, CacheAdmission admission not None, BlockCache meta_cache not None):
        cdef bytes name = info.name.encode()
        self.info, self.object_store, self.admission = info, object_store, admission
        self.slot = hash64(<const uint8_t*><const char*>name, len(name))
        self.data_path, self.meta_path = sstable_data_path(info.name), sstable_meta_path(info.name)
        self.metas = FileSlots(meta_cache, 1)
        self.meta_slot = self.metas.entries
        self.flights = {}
        self.smallest = slice_of(info.smallest)
        self.largest = slice_of(info.largest)
        self.min_epoch, self.max_epoch = info.oldest_epoch, info.newest_epoch
        if info.prefixes and info.filter_policy != "none":
            self.prefixes = {table_id: key_prefix(rule) for table_id, rule in info.prefixes}

    @property
    def meta(self) -> SstableMeta:
        """The meta. Raises Corruption naming the object, or the object store's errors."""
        return self.opened().meta

    def read_block(self, Py_ssize_t index) -> Block:
        """Block `index`, checked. Raises Corruption naming the object."""
        return self.block(index)

    def keep_meta(self, bytes encoded):
        """Caches the encoded meta of a file just written, so that it need not be read."""
        self.hold(SstableMeta.decode(encoded, self.info, self.meta_path))

    cdef PrefixExtractor prefix_for(self, Slice user_key):
        if self.prefixes is None:
            return None
        return self.prefixes.get(head_of(user_key.data, user_key.size) >> 32)

    cdef bint rules_out(self, bytes start, bytes end) except -1:
        cdef PrefixExtractor prefix
        cdef Slice first
        first = slice_of(start)
        prefix = self.prefix_for(first)
        hash = None if prefix is None else prefix.hash_around(start, end)
        return hash is not None and not self.opened().may_contain(hash)

    cdef OpenedSstable opened(self):
        cdef PyObject* found = self.metas.peek(0)
        return <OpenedSstable>found if found != NULL else self.load_meta()

    cdef OpenedSstable load_meta(self):
        other = self.flights.get(META)
        if other is not None:
            return other.wait(self.meta_path)
        self.admission.meta_misses += 1
        with Flight(self.flights, [META]) as flight:
            encoded = self.object_store.get(self.meta_path)
            try:
                meta = SstableMeta.decode(encoded, self.info, self.meta_path)
            except Corruption:
                if not self.object_store.forget(self.meta_path):
                    raise
                meta = SstableMeta.decode(self.object_store.get(self.meta_path), self.info, self.meta_path)
            flight.result = self.hold(meta)
            return flight.result

    cdef OpenedSstable hold(self, object meta):
        """Caches the meta and allocates the slots of its blocks."""
        cdef OpenedSstable opened = OpenedSstable(meta)
        if self.slots is None:
            self.slots = FileSlots(self.admission.cache, opened.index.blocks)
            self.slots.learn(opened.index)
        if opened.bloom is not None:
            self.filter_words, self.filter_blocks = opened.bloom.words, opened.bloom.blocks
        self.metas.put(0, opened, meta.size_bytes, NULL)
        return opened

    cdef bint has_file(self) except -1:
        if self.file is None or self.file.is_closing:
            self.file = self.object_store.open_file(self.data_path)
        return self.file is not None

    cdef bint admits(self, OpenedSstable opened, Py_ssize_t index) except -1:
        cdef uint64_t hash = (self.slot + <uint64_t>index) * MIXED
        cdef Py_ssize_t raw_size = opened.index.raw_sizes[index]
        return self.admission.admits(hash ^ (hash >> 32), raw_size + (raw_size >> 2))

    cdef Block block(self, Py_ssize_t index):
        cdef PyObject* found = NULL if self.slots is None else self.slots.peek(index)
        return <Block>found if found != NULL else self.blocks([index])[0]

    cdef list cached_blocks(self, Py_ssize_t start, Py_ssize_t end):
        cdef PyObject* found
        cdef Py_ssize_t index
        cdef list out = [None] * (end - start)
        for index in range(start, end):
            found = self.slots.peek(index)
            if found != NULL:
                out[index - start] = <object>found
        return out

    cdef list blocks(self, list indexes):
        cdef PyObject* found
        cdef list out = [None] * len(indexes), waits = []
        cdef dict missing = {}
        self.opened()
        for position, index in enumerate(indexes):
            found = self.slots.peek(index)
            if found != NULL:
                out[position] = <object>found
            elif index in self.flights:
                waits.append((position, index, self.flights[index]))
            else:
                missing.setdefault(index, []).append(position)
        if missing:
            for index, block in self.load_blocks(sorted(missing)).items():
                for position in missing[index]:
                    out[position] = block
        for position, index, flight in waits:
            out[position] = flight.wait(self.data_path)[index]
        return out

    cdef dict load_blocks(self, list indexes):
        """Reads blocks of ascending `indexes`, none of which is cached or being read."""
        cdef OpenedSstable meta = self.opened()
        cdef Py_ssize_t start = 0, end
        cdef CacheSlot shown
        cdef dict loaded = {}
        with Flight(self.flights, indexes) as flight:
            while start < len(indexes):
                end = start + 1
                while end < len(indexes) and are_near(meta, indexes[start], indexes[end - 1], indexes[end]):
                    end += 1
                try:
                    self.read_into(meta, indexes[start:end], loaded)
                except Corruption:
                    if not self.object_store.forget(self.data_path):
                        raise
                    self.read_into(meta, indexes[start:end], loaded)
                start = end
            for index, block in loaded.items():
                (<Block>block).show_in(&shown)
                self.slots.put(index, block, (<Block>block).size_bytes, &shown)
            flight.result = loaded
        return loaded

    cdef read_into(self, OpenedSstable meta, list indexes, dict loaded):
        """Decodes blocks of ascending `indexes` from one read that spans them."""
        cdef Py_ssize_t first = indexes[0], last = indexes[len(indexes) - 1]
        cdef uint64_t offset = meta.index.offsets[first]
        cdef Py_ssize_t size = <Py_ssize_t>(meta.index.offsets[last + 1] - offset)
        cdef uint8_t* local = self.read_local(offset, size)
        cdef bytes stored
        try:
            if local != NULL:
                self.decode_into(meta, indexes, local, offset, loaded)
            else:
                stored = self.stored(meta, first, last)
                self.decode_into(meta, indexes, <const uint8_t*><const char*>stored, offset, loaded)
        finally:
            pool_release(local, size)

    cdef uint8_t* read_local(self, uint64_t offset, Py_ssize_t size) except? NULL:
        """Bytes of `.data` in memory of the pool; NULL: it is no local file, or failed, which the store reports."""
        cdef uint8_t* read
        cdef Py_ssize_t got
        if not self.has_file() or not self.file.enter():
            return NULL
        read = pool_acquire(size)
        try:
            if read == NULL:
                raise MemoryError(f"no memory to read {size} bytes")
            with nogil:
                got = self.file.read(read, size, offset)
        finally:
            self.file.leave()
        if got == size:
            return read
        pool_release(read, size)
        return NULL

    cdef decode_into(
        self, OpenedSstable meta, list indexes, const uint8_t* data, uint64_t offset, dict loaded
    ):
        cdef Py_ssize_t count = len(indexes), at
        cdef list blocks = [self.block_to_cache() for _ in indexes]
        cdef Py_ssize_t* wanted = <Py_ssize_t*>malloc(count * sizeof(Py_ssize_t))
        cdef PyObject** into = <PyObject**>malloc(count * sizeof(PyObject*))
        try:
            if wanted == NULL or into == NULL:
                raise MemoryError(f"no memory to read {count} blocks")
            for at in range(count):
                wanted[at], into[at] = indexes[at], <PyObject*>blocks[at]
            with nogil:
                for at in range(count):
                    load_block(<Block>into[at], meta.index, wanted[at], data, offset)
        finally:
            free(wanted)
            free(into)
        loaded.update(zip(indexes, blocks, strict=True))

    cdef Block block_to_cache(self):
        cdef Block block = Block(self.data_path)
        block.is_for_cache, block.will_be_indexed = True, self.slots.are_hashed
        return block

    cdef bytes stored(self, OpenedSstable meta, Py_ssize_t first, Py_ssize_t last):
        cdef uint64_t start = meta.index.offsets[first], end = meta.index.offsets[last + 1]
        cdef bytes found = self.object_store.get(self.data_path, range(start, end))
        if len(found) != end - start:
            raise Corruption(self.data_path, f"blocks {first} to {last}", f"{end - start} bytes", f"{len(found)}")
        return found


cdef bint are_near(OpenedSstable meta, Py_ssize_t first, Py_ssize_t last, Py_ssize_t index):
    """Whether a read of blocks first..last may extend to `index`."""
    cdef uint64_t end = meta.index.offsets[last + 1]
    return (meta.index.offsets[index] - end <= <uint64_t>GAP_BYTES
            and meta.index.offsets[index + 1] - meta.index.offsets[first] <= <uint64_t>RANGE_BYTES)


cdef dict blocks_of(dict missing, list pins):
    cdef SstableReader reader
    cdef dict loaded = {}
    for reader, wanted in missing.items():
        indexes = sorted(wanted)
        blocks = reader.blocks(indexes)
        pins.append(blocks)
        loaded[reader] = dict(zip(indexes, blocks, strict=True))
    return loaded
