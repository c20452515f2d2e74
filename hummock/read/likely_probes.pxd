"""Keys of a call that are answered by their likely rows, before filter and index are asked."""

from libc.stdint cimport uint64_t

from hummock.read.point_read cimport Probe


cdef Py_ssize_t answer_likely(void* run, int number, Probe* probes, Py_ssize_t count, uint64_t newest) noexcept
# of the probes that look for their keys in the SortedRun, source `number`: those whose likely row says enough are DONE,
# their blocks borrowed from the cache, or go on behind the run; how many
