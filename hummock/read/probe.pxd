"""Probe: one key on its way through the sources of a view, as a state machine that several modules advance."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.cache.block_cache cimport CacheSlot


cdef enum ProbeState:
    SEEKING                             # look at the sources from `source` on
    SEEKING_NEXT                        # not in block `block_index - 1`: look whether the next one begins with the key
    NEEDS_META                          # `reader` must be opened before its filter can be asked
    SEEKING_BLOCK                       # the file's filter lets the key be in it, near block `block_index`
    NEEDS_BLOCK                         # block `block_index` of `reader` must be at hand
    IN_BLOCK                            # `block` is at hand, to be searched
    DONE                                # `value` is the answer


cdef struct Probe:                      # one key on its way
    Slice key                           # borrowed from the caller
    uint64_t hash
    Slice value                         # of the answer; data NULL: absent or deleted. Owner: a pinned block or a batch
    uint64_t epoch                      # of the answer
    void* reader                        # SstableReader, borrowed from the view
    void* block                         # Block, borrowed from the pins, or from the cache while the GIL is kept
    CacheSlot* slot                     # of that block while it is borrowed from the cache; NULL: pinned
    Py_ssize_t block_index
    double row_share                    # how much of the block stands before the key, as the index lets it seem
    int source                          # the first of the view's sources that is not ruled out
    ProbeState state
    bint is_predicted                   # its predicted row is being looked at
    bint is_admitted                    # the admission policy has decided that the block is to be cached
