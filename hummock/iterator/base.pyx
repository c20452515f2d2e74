"""HummockIterator: the base class of iterators over full keys, and a convenience API for Python.

The compiled methods are the contract of base.pxd. `entries` yields Python objects; it is for tests and for inspecting
files, not for reads.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from hummock.base.key cimport Slice, head_of


cdef class HummockIterator:
    """Invariant: while `valid`, `user_key`, `epoch` and `value` are those of one entry, until the next move.

    A move that raises leaves the iterator not valid, wherever its children are: only `rewind` or `seek` begins anew.
    """

    cdef int rewind(self) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not say where it begins")

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not say how it seeks")

    cdef int next(self) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not say how it moves")

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        return False

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        while rows > 0:
            self.next()
            rows -= 1
        return 0

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        if self.pulled > 0:
            self.pulled = 0
            self.next()
        if not self.valid:
            return 0
        out.high = head_of(self.user_key.data, self.user_key.size)
        out.low = low_of(self.user_key.data, self.user_key.size)
        out.user_key, out.epoch, out.value = self.user_key, self.epoch, self.value
        self.pulled = 1
        return 1

    def entries(self, bytes start=None, epoch=0xFFFFFFFFFFFFFFFF):
        """Yields (user key, epoch, value or None for a tombstone) from the first entry in this direction.

        With `start`, from the first entry at or beyond (`start`, `epoch`).
        """
        cdef Slice target
        if start is None:
            self.rewind()
        else:
            target.data = <const uint8_t*>(<const char*>start)
            target.size = len(start)
            self.seek(target, epoch)
        while self.valid:
            yield (
                PyBytes_FromStringAndSize(<const char*>self.user_key.data, self.user_key.size),
                self.epoch,
                None if self.value.data == NULL
                else PyBytes_FromStringAndSize(<const char*>self.value.data, self.value.size),
            )
            self.next()
