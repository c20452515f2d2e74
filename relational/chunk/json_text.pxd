"""JSON text in the one form that JSONB is stored in."""

from libc.stdint cimport uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer


cdef class JsonText:
    """Writes canonical texts one after the other to `out`. One user at a time."""
    cdef ByteBuffer out
    cdef ByteBuffer members             # a stack of Members of the objects around the place in hand
    cdef ByteBuffer digits
    cdef ByteBuffer spare
    cdef const char* problem            # of the last text that was none
    cdef const uint8_t* at
    cdef const uint8_t* stop

    # Appends the canonical form of a text. False: it is no JSON, `problem` says why, and `at` is where. An output that
    # is already canonical comes out as it went in.
    cdef bint write(self, const uint8_t* text, Py_ssize_t size) except -1 nogil

    cdef bint fail(self, const char* problem) noexcept nogil
    cdef int skip_blanks(self) noexcept nogil
    cdef bint value(self, int depth) except -1 nogil
    cdef bint word(self, const char* word, Py_ssize_t size) except -1 nogil
    cdef bint array(self, int depth) except -1 nogil
    cdef bint object(self, int depth) except -1 nogil
    cdef int settle(self, Py_ssize_t first, Py_ssize_t start) except -1 nogil
    cdef bint string(self, Py_ssize_t* bytes) except -1 nogil
    cdef bint escape(self, Py_ssize_t* bytes) except -1 nogil
    cdef int hex4(self) noexcept nogil
    cdef bint number(self) except -1 nogil
