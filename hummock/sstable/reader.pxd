"""SstableReader: one file as this process knows it."""

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
    """A file's meta with its parts typed, as the cache holds it. Immutable."""
    cdef readonly object meta           # SstableMeta
    cdef SstableIndex index
    cdef BloomFilter bloom              # None: no filter, or one of another policy
    cdef object other_filter            # a Filter that is asked under the GIL, or None

    cdef bint may_contain(self, uint64_t hash) except -1


cdef class SstableReader:
    cdef readonly object info           # SstableInfo
    cdef readonly str data_path
    cdef readonly str meta_path
    cdef object object_store
    cdef FileSlots metas               # one slot: the OpenedSstable
    cdef CacheSlot* meta_slot         # in `metas`
    cdef const uint64_t* filter_words   # where they last were in memory: nothing but a prefetch may go there
    cdef uint64_t filter_blocks         # 0: the file was not opened yet, or has no such filter
    cdef FileSlots slots               # of the blocks; None before the meta was first read
    cdef CacheAdmission admission                 # of the block cache
    cdef CachedFd file                  # `.data`, as far as it was asked for and is a file here
    cdef uint64_t slot                 # of the file among those at the admission
    cdef dict flights                   # what a thread is fetching now: block index, or -1 for the meta
    cdef Slice smallest                 # first and last user key; owner: `info`
    cdef Slice largest
    cdef dict prefixes                  # table id -> PrefixExtractor that the filter knows; None: no table has one
    cdef uint64_t min_epoch             # of the entries, spill offset included
    cdef uint64_t max_epoch
    cdef object __weakref__

    cdef PrefixExtractor prefix_for(self, Slice user_key)       # of the key's table; None: the filter knows none
    cdef bint rules_out(self, bytes start, bytes end) except -1     # no key of the range is in the file
    cdef OpenedSstable opened(self)                       # the meta, from the cache or read now
    cdef OpenedSstable load_meta(self)
    cdef OpenedSstable hold(self, object meta)
    cdef bint has_file(self) except -1                    # whether `file` is open, by now
    cdef bint admits(self, OpenedSstable opened, Py_ssize_t index) except -1     # is a missed block to be cached
    cdef Block block(self, Py_ssize_t index)            # from the cache, or read now and cached
    cdef list cached_blocks(self, Py_ssize_t start, Py_ssize_t end)   # each block of [start, end), or None
    cdef list blocks(self, list indexes)                # the same for many; one read for neighbours
    cdef dict load_blocks(self, list indexes)
    cdef read_into(self, OpenedSstable meta, list indexes, dict loaded)
    cdef bytes stored(self, OpenedSstable meta, Py_ssize_t first, Py_ssize_t last)   # bytes of blocks [first, last]


cdef dict blocks_of(dict missing, list pins)
# `missing`: block indexes, a set for each reader. Blocks by index by reader; `pins` holds them.


cdef inline int load_block(
    Block block, SstableIndex index, Py_ssize_t number, const uint8_t* stored, uint64_t stored_offset
) except -1 nogil:
    """Decodes block `number` of the file from `stored`, whose first byte stands at `stored_offset` of `.data`."""
    if block.rows == 0:
        block.rows = index.rows[number]
    block.load(
        stored + (index.offsets[number] - stored_offset),
        <Py_ssize_t>(index.offsets[number + 1] - index.offsets[number]), index.codecs[number],
        index.raw_sizes[number], index.checksums[number], number)
    if block.rows != index.rows[number]:
        block.corrupt(number, "rows", index.rows[number], block.rows)
    return block.stand_under(index.global_epoch, number) if index.global_epoch > 0 else 0
