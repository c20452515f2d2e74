"""Rows of columns by their positions."""

cdef list gather(list sources)
# The rows of several sources, one source after the other, as one list of columns. A source is (columns, int32[n]): its
# row i is row indices[i] of the columns, or NULL where that is negative; REQUIRES all < the rows of the columns. The
# sources have the same types; there is at least one.
