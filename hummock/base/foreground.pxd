"""ForegroundWork: work that somebody waits for. Merges pause while it runs.

A checkpoint needs every core for tens of milliseconds: rows that are queued are processed, encoded, and written. A
merge beside it takes its share of time slices, and the checkpoint takes half as long again. What a merge does can wait
[so does compaction behind flushes in the rate limiter of RocksDB]. It pauses for the first LONGEST_NS of such work
alone, since what takes longer may itself wait for the merge, as writers do when level 0 is full; and at most half of
the time. It pauses a little before such work is expected too: what was begun beside it takes longer, and is in its way.
No pause is longer than LONGEST_PAUSE_NS, whatever follows what it waits for.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class ForegroundWork:
    cdef int64_t since, until       # when merges pause, by `monotonic_ns`. Read without a lock
    cdef bint is_running
    cdef object changed             # threading.Condition
    cdef int64_t pause(self, int64_t work_until) except -1 nogil
