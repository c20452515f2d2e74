"""The rank of a value of one word: an unsigned 64-bit integer that orders as the values do in SQL.

An integer or a number of days or microseconds has the sign bit inverted. Of a DOUBLE all bits are inverted if it is
negative, else the sign bit; NaN is one value, the greatest, and -0.0 is 0.0.
"""

from libc.math cimport NAN
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from relational.chunk.column cimport DOUBLE, REAL, ColumnView, width_of
from relational.chunk.column_builder cimport ColumnBuilder


cdef inline uint64_t rank_of(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    cdef int width = width_of(view.kind)
    cdef int64_t whole
    cdef double number
    if view.kind == DOUBLE or view.kind == REAL:
        number = (<const double*>view.values)[row] if view.kind == DOUBLE else (<const float*>view.values)[row]
        if number != number:
            return ~<uint64_t>0
        number += 0.0                   # -0.0 becomes 0.0
        memcpy(&whole, &number, sizeof(number))
        return ~<uint64_t>whole if whole < 0 else <uint64_t>whole ^ (<uint64_t>1 << 63)
    if width == 8:
        whole = (<const int64_t*>view.values)[row]
    elif width == 4:
        whole = (<const int32_t*>view.values)[row]
    else:
        whole = (<const int16_t*>view.values)[row]
    return <uint64_t>whole ^ (<uint64_t>1 << 63)


cdef inline void put_value(ColumnBuilder out, Py_ssize_t row, uint64_t rank) noexcept nogil:
    cdef int64_t whole = <int64_t>(rank ^ (<uint64_t>1 << 63))
    cdef double number
    out.present[row] = 1
    if out.kind == DOUBLE or out.kind == REAL:
        if rank == ~<uint64_t>0:
            number = NAN
        else:
            whole = whole if rank & (<uint64_t>1 << 63) else <int64_t>~rank
            memcpy(&number, &whole, sizeof(number))
        if out.kind == DOUBLE:
            (<double*>out.values)[row] = number
        else:
            (<float*>out.values)[row] = <float>number
    elif out.width == 8:
        (<int64_t*>out.values)[row] = whole
    elif out.width == 4:
        (<int32_t*>out.values)[row] = <int32_t>whole
    else:
        (<int16_t*>out.values)[row] = <int16_t>whole
