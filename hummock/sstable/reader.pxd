"""SstableReader: reads one file through the caches of this process."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block
from hummock.sstable.cache.admission cimport CacheAdmission
from hummock.sstable.cache.block_cache cimport BlockCache, CacheSlot, FileSlots
from hummock.sstable.filter.bloom cimport BloomFilter
from hummock.sstable.filter.prefix_extractor cimport PrefixExtractor
from hummock.sstable.index cimport SstableIndex


cdef class OpenedSstable:
    """The meta of a file with its members typed, as cached. Immutable."""
    cdef readonly object meta           # SstableMeta
    cdef SstableIndex index
    cdef BloomFilter bloom              # None: no filter, or one of another policy
    cdef object other_filter            # a Filter of another policy, called under the GIL; or None

    cdef bint may_contain(self, uint64_t hash) except -1


cdef class SstableReader:
    cdef readonly object info           # SstableInfo
    cdef readonly str data_path
    cdef readonly str meta_path
    cdef object object_store
    cdef FileSlots metas                # one slot: the OpenedSstable
    cdef CacheSlot* meta_slot           # in `metas`
    cdef const uint64_t* filter_words   # last known address, possibly freed since: for prefetch only
    cdef uint64_t filter_blocks         # 0: the meta was not read yet, or has no Bloom filter
    cdef FileSlots slots                # of the blocks; None until the meta is first read
    cdef CacheAdmission admission       # of the block cache
    cdef CachedFd file                  # `.data`, if it is a local file and was opened
    cdef uint64_t slot                  # hash of the file name, for the admission policy
    cdef dict flights                   # reads in progress, by block index, or -1 for the meta
    cdef Slice smallest                 # first and last user key; owner: `info`
    cdef Slice largest
    cdef dict prefixes                  # table id -> PrefixExtractor used by the filter; None: no table has one
    cdef uint64_t min_epoch             # of the entries, spill offset included
    cdef uint64_t max_epoch
    cdef object __weakref__

    cdef PrefixExtractor prefix_for(self, Slice user_key)       # of the key's table; None: the filter has none
    cdef bint rules_out(self, bytes start, bytes end) except -1     # the filter excludes all keys of the range
    cdef OpenedSstable opened(self)                     # the meta, from the cache or read now
    cdef OpenedSstable load_meta(self)
    cdef OpenedSstable hold(self, object meta)
    cdef bint has_file(self) except -1                  # opens `file` if possible; whether it is open
    cdef bint admits(self, OpenedSstable opened, Py_ssize_t index) except -1     # whether to cache a missed block
    cdef Block block(self, Py_ssize_t index)            # from the cache, or read now and cached
    cdef list cached_blocks(self, Py_ssize_t start, Py_ssize_t end)   # each block of [start, end), or None
    cdef list blocks(self, list indexes)                # `block` for many; one read for neighbours
    cdef dict load_blocks(self, list indexes)
    cdef read_into(self, OpenedSstable meta, list indexes, dict loaded)
    cdef uint8_t* read_local(self, uint64_t offset, Py_ssize_t size) except? NULL
    cdef decode_into(self, OpenedSstable meta, list indexes, const uint8_t* data, uint64_t offset, dict loaded)
    cdef Block block_to_cache(self)                     # an empty one
    cdef bytes stored(self, OpenedSstable meta, Py_ssize_t first, Py_ssize_t last)   # bytes of blocks [first, last]


cdef dict blocks_of(dict missing, list pins)
# `missing`: reader -> set of block indexes. Returns reader -> {index: block}; `pins` keeps the blocks alive


cdef inline int load_block(
    Block block, SstableIndex index, Py_ssize_t number, const uint8_t* stored, uint64_t stored_offset
) except -1 nogil:
    """Decodes block `number` of the file from `stored`, which begins at `stored_offset` of `.data`."""
    if block.rows == 0:
        block.rows = index.rows[number]
    block.load(
        stored + (index.offsets[number] - stored_offset),
        <Py_ssize_t>(index.offsets[number + 1] - index.offsets[number]), index.codecs[number],
        index.raw_sizes[number], index.checksums[number], number)
    if block.rows != index.rows[number]:
        block.corrupt(number, "rows", index.rows[number], block.rows)
    return block.override_epochs(index.global_epoch, number) if index.global_epoch > 0 else 0
