"""SortedRun: files with disjoint keys, searched as one."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn


cdef enum:                              # of a run's `hit_bias`
    LIKELY_HIT = 2                      # from here on predicted rows are examined before the filter
    MAX_BIAS = 3


cdef struct FileFence:
    Slice smallest                      # first and last user key of the file; owner: its reader
    Slice largest
    void* reader                        # SstableReader, borrowed from the run's `readers`


cdef class SortedRun:
    """Files with disjoint user keys, ascending. Shared by all views that contain it."""
    cdef readonly tuple infos
    cdef tuple readers                  # SstableReader of each info
    cdef object store                   # SstableStore
    cdef FileFence* files               # owned array
    cdef uint64_t* last_heads           # prefix (`head_of`) of each file's largest key, behind `prefix`; owned array
    cdef uint64_t* first_heads          # ... and of each smallest key; in the same allocation
    cdef Slice prefix                   # common prefix of all keys of the run
    cdef readonly Py_ssize_t count
    cdef int hit_bias                   # 0..MAX_BIAS, a saturating counter of recent hits; under the GIL
    cdef uint64_t min_epoch             # of all entries, spill offset included

    cdef Py_ssize_t file_among(self, Slice user_key, Py_ssize_t low, Py_ssize_t high) noexcept nogil
    cdef Py_ssize_t file_from(self, Slice user_key) noexcept nogil  # the first file that ends at or after the key
    cdef int mark(
        self, BinaryColumn prefixes, Py_ssize_t first, Py_ssize_t rows, uint64_t newest, uint8_t* among,
        Py_ssize_t stride) except -1
    # sets among[row * stride] for each prefix that a file may hold a key under, by its filter if it contains prefixes
    cdef tuple overlapping(self, bytes start, bytes end, uint64_t newest)
    # the infos of the files that may hold a version up to `newest` of a key of [start, end)
    cdef void* reader_of(self, Slice user_key) noexcept nogil       # of the only file that may hold the key, or NULL
