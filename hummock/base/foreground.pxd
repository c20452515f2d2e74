"""ForegroundWork: work that somebody waits for. Merges pause while it runs.

A checkpoint needs every core for tens of milliseconds: rows that are queued are processed, encoded, and written. A
merge beside it takes its share of time slices, and the checkpoint takes half as long again. What a merge does can wait
[so does compaction behind flushes in the rate limiter of RocksDB]. It pauses for the first LONGEST_NS of such work
alone, since what takes longer may itself wait for the merge, as writers do when level 0 is full; and at most half of
the time.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class ForegroundWork:
    cdef int64_t until              # merges pause until then, by `monotonic_ns`; 0: nothing runs. Read without a lock
    cdef object changed             # threading.Condition
