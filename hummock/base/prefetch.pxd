"""Software prefetch of single lines; batches of them are issued by `sstable/prefetch.pxd`."""

cdef extern from * nogil:
    """
    #define hummock_prefetch(address) __builtin_prefetch(address)
    #define hummock_prefetch_for_write(address) __builtin_prefetch(address, 1)
    """
    void prefetch "hummock_prefetch"(const void* address) noexcept
    void prefetch_for_write "hummock_prefetch_for_write"(const void* address) noexcept
