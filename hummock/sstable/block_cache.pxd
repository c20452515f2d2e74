"""BlockCache: objects kept up to a budget of bytes, found by pointer."""

from cpython.object cimport PyObject

from hummock.sstable.bloom_filter cimport prefetch_line


cdef struct CacheNode:                  # the place of one object; owned by its CacheShelf
    PyObject* value                     # owned reference; NULL: not cached
    Py_ssize_t bytes                    # what it counts in the budget
    CacheNode* newer                    # neighbours in the cache's queue while `value` is set
    CacheNode* older
    bint was_used                       # since it last stood at the old end of the queue


cdef class BlockCache:
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t used_bytes
    cdef readonly Py_ssize_t objects
    cdef readonly Py_ssize_t evictions
    cdef readonly BlockCache lender     # whose budget this one may use half of; None: its own is all
    cdef readonly Py_ssize_t lent_bytes     # of `capacity_bytes`, used by the borrower
    cdef CacheNode queue                # sentinel: queue.older is the newest node, queue.newer the oldest

    cdef void link(self, CacheNode* node) noexcept
    cdef void unlink(self, CacheNode* node) noexcept
    cdef void remove(self, CacheNode* node)
    cdef Py_ssize_t limit_bytes(self) noexcept              # that it may use at this moment
    cdef void borrow(self) noexcept
    cdef void shrink(self)


cdef class CacheShelf:
    """The places of one file, by index. All methods under the GIL."""
    cdef readonly BlockCache cache
    cdef readonly Py_ssize_t size
    cdef CacheNode* nodes               # size of them; owned

    cdef inline PyObject* peek(self, Py_ssize_t index) noexcept:
        """Borrowed, valid until the GIL is released; NULL: not cached. Counts as a use."""
        cdef CacheNode* node = &self.nodes[index]
        if not node.was_used:           # a line that is only read stays with every reader
            node.was_used = True
        return node.value

    cdef inline void prefetch(self, Py_ssize_t index) noexcept:     # of what `peek` reads
        prefetch_line(&self.nodes[index])

    cdef put(self, Py_ssize_t index, object value, Py_ssize_t bytes_)
