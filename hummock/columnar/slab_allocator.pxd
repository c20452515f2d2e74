"""Memory for what caches hold, in huge pages where the system gives them.

A random read of a large cache in 4 KiB pages waits for the page's address before it waits for the line. What is read
so (blocks, indexes, filters) takes its memory here, everything else from the pool. All functions may be called from
any thread, with or without the GIL.
"""

from libc.stdint cimport uint8_t

cdef uint8_t* slab_take(Py_ssize_t size) noexcept nogil
# memory for at least `size` bytes, aligned to a cache line where it is large, contents undefined; NULL when there is
# none

cdef void slab_give(uint8_t* memory, Py_ssize_t size) noexcept nogil
# gives back what `slab_take(size)` returned: the SAME size; NULL is allowed

cdef Py_ssize_t slab_capacity(Py_ssize_t size) noexcept nogil
# bytes that `slab_take(size)` really provides; taking and giving that number names the same memory

cdef Py_ssize_t slab_share(Py_ssize_t size) noexcept nogil
# bytes that `slab_take(size)` costs, its part of what a slab cannot give away included: for budgets

cdef Py_ssize_t slab_idle() noexcept nogil
# bytes of slabs that were taken once and are not now
