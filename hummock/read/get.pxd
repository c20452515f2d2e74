"""A read of one key, as far as it needs nothing but memory."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.sstable.cache.block_cache cimport LikelyRow

cdef enum:
    TOGETHER = 16               # sources whose filters are asked for together
    NOT_AT_HAND = -2            # from `row_of`, beside NOT_HERE


cdef struct OpenFile:           # of a run, borrowed
    void* run                   # SortedRun
    void* reader                # SstableReader; NULL: no file of the run may hold the key
    LikelyRow likely            # if it is expected
    bint is_expected            # that the file holds the key


cdef struct Answer:
    Slice value                 # data NULL: absent or deleted
    uint64_t epoch
    uint64_t newest                     # epoch that is seen
    bint is_admitted            # the block that is not at hand is to be cached
