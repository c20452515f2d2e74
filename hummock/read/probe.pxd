"""Probe: the lookup of one key in the sources of a view, as a state machine that several modules advance."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.block_search cimport NEXT_BLOCK
from hummock.sstable.cache.block_cache cimport CacheSlot


cdef enum ProbeState:
    SEEKING                             # examine the sources from `source` on
    SEEKING_NEXT                        # not in block `block_index - 1`: check whether the next one begins with the key
    NEEDS_META                          # `reader` must be opened before its filter can be checked
    SEEKING_BLOCK                       # the file may hold the key by its filter, near block `block_index`
    NEEDS_BLOCK                         # block `block_index` of `reader` must be loaded
    IN_BLOCK                            # `block` is in memory, to be searched
    DONE                                # `value` is the answer


cdef enum Admission:                    # of the missing block, which each lookup asks for once
    UNASKED
    REFUSED
    ADMITTED                            # the block is to be cached


cdef struct Probe:                      # the lookup of one key
    Slice key                           # borrowed from the caller
    uint64_t hash
    Slice value                         # of the answer; data NULL: absent or deleted. Owner: a pinned block or a batch
    uint64_t epoch                      # of the answer
    void* reader                        # SstableReader, borrowed from the view
    void* block                         # Block, borrowed from the pins, or from the cache while the GIL is kept
    CacheSlot* slot                     # of that block while it is borrowed from the cache; NULL: pinned
    Py_ssize_t block_index
    double row_share                    # estimated share of the block's rows before the key, from the index
    int source                          # the first of the view's sources that is not excluded
    ProbeState state
    bint is_predicted                   # its predicted row is being examined
    Admission admission


cdef inline void leave_block(Probe* probe, Py_ssize_t result) noexcept nogil:
    """Where the probe continues after a search that ended in NOT_HERE or NEXT_BLOCK."""
    if result == NEXT_BLOCK:
        probe.block_index, probe.state, probe.slot = probe.block_index + 1, SEEKING_NEXT, NULL
    else:
        probe.source, probe.state, probe.slot = probe.source + 1, SEEKING, NULL
    probe.admission = UNASKED
