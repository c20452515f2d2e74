"""Memory for cached objects, in huge pages if the system provides them.

A random read of a large cache in 4 KiB pages waits for a TLB miss before the cache miss. Objects read that way (blocks,
indexes, filters) are allocated here, everything else from the pool. All functions may be called from any thread, with
or without the GIL.
"""

from libc.stdint cimport uint8_t

cdef uint8_t* slab_acquire(Py_ssize_t size) noexcept nogil
# allocates at least `size` bytes, aligned to a cache line if large, contents undefined; NULL if out of memory

cdef void slab_release(uint8_t* memory, Py_ssize_t size) noexcept nogil
# frees what `slab_acquire(size)` returned: the SAME size; NULL is allowed

cdef Py_ssize_t slab_capacity(Py_ssize_t size) noexcept nogil
# bytes that `slab_acquire(size)` really provides; taking and giving that number names the same memory

cdef Py_ssize_t slab_share(Py_ssize_t size) noexcept nogil
# bytes that `slab_acquire(size)` costs, including its share of a slab's unusable rest: for budgets

cdef Py_ssize_t slab_idle() noexcept nogil
# bytes of empty slabs, and in other slabs of slots that were allocated once and are free now
