"""A pool of reusable buffers by size class, and ByteBuffer, a growable byte string.

The pool keeps freed buffers in one list per size class (four classes per power of two) up to a total limit, at which it
frees buffers of other classes first; sizes outside its classes are not kept. Large buffers are huge pages of their own.
They grow into one that is kept, whose pages were touched before, or else by moving their pages, without a copy. The
pool is safe from any thread with or without the GIL, so that an Arrow release callback may return memory on any thread.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from hummock.base.pages cimport map_aligned, regrow, unmap
from hummock.base.posix cimport HUGE_PAGE_BYTES, can_move_pages
from hummock.base.posix cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock
from hummock.columnar.size_class cimport size_class, size_of_class

cdef enum:
    SMALLEST_EXPONENT = 11      # sizes up to 2 KiB go to malloc, which has its own caches for them
    LARGEST_EXPONENT = 27       # sizes above 128 MiB are too rare to pool
    STEPS = 2                   # four classes to each power of two
    CLASSES = (LARGEST_EXPONENT - SMALLEST_EXPONENT) << STEPS

cdef Py_ssize_t SMALLEST = (<Py_ssize_t>1) << SMALLEST_EXPONENT
cdef Py_ssize_t LARGEST = (<Py_ssize_t>1) << LARGEST_EXPONENT

cdef struct FreeBuffer:         # the first bytes of a free buffer
    FreeBuffer* next
    Py_ssize_t capacity         # bytes

cdef pthread_mutex_t pool_lock
cdef FreeBuffer* free_lists[CLASSES]
cdef Py_ssize_t kept_bytes = 0                              # guarded by pool_lock, as the lists are
cdef int next_dropped = 0                                   # round-robin position of `drop_other`, also guarded
cdef Py_ssize_t kept_limit = (<Py_ssize_t>256) << 20        # bytes

pthread_mutex_init(&pool_lock, NULL)


cdef inline int class_of(Py_ssize_t size) noexcept nogil:
    """The class whose buffers hold `size` bytes; -1 for sizes that are not pooled."""
    return size_class(size, SMALLEST_EXPONENT, STEPS) if SMALLEST < size <= LARGEST else -1


cdef inline Py_ssize_t class_bytes(int index) noexcept nogil:
    return size_of_class(index, SMALLEST_EXPONENT, STEPS)


cdef uint8_t* pop_kept(int index) noexcept nogil:
    global kept_bytes
    cdef FreeBuffer* found
    pthread_mutex_lock(&pool_lock)
    found = free_lists[index]
    if found != NULL:
        free_lists[index] = found.next
        kept_bytes -= class_bytes(index)
    pthread_mutex_unlock(&pool_lock)
    return <uint8_t*>found


cdef Py_ssize_t pool_capacity(Py_ssize_t size) noexcept nogil:
    cdef int index = class_of(size)
    if index < 0:
        return size if size > 0 else 1
    return class_bytes(index)


cdef uint8_t* pool_reuse(Py_ssize_t size) noexcept nogil:
    cdef int index = class_of(size)
    return pop_kept(index) if index >= 0 else NULL


cdef uint8_t* pool_acquire(Py_ssize_t size) noexcept nogil:
    cdef uint8_t* found = pool_reuse(size)
    return found if found != NULL else fresh(pool_capacity(size))


cdef inline uint8_t* fresh(Py_ssize_t capacity) noexcept nogil:
    return map_aligned(capacity) if capacity >= HUGE_PAGE_BYTES else <uint8_t*>malloc(<size_t>capacity)


cdef inline void give_back(uint8_t* memory, Py_ssize_t capacity) noexcept nogil:
    if capacity >= HUGE_PAGE_BYTES:
        unmap(memory, capacity)
    else:
        free(memory)


cdef void pool_release(uint8_t* memory, Py_ssize_t size) noexcept nogil:
    global kept_bytes
    cdef int index = class_of(size)
    cdef FreeBuffer* buffer = <FreeBuffer*>memory
    cdef FreeBuffer* dropped = NULL
    if memory == NULL:
        return
    if index < 0:
        give_back(memory, pool_capacity(size))
        return
    buffer.capacity = class_bytes(index)
    pthread_mutex_lock(&pool_lock)
    while kept_bytes + class_bytes(index) > kept_limit and drop_other(index, &dropped):
        pass
    if kept_bytes + class_bytes(index) <= kept_limit:
        buffer.next = free_lists[index]
        free_lists[index] = buffer
        kept_bytes += class_bytes(index)
        buffer = NULL
    pthread_mutex_unlock(&pool_lock)
    if buffer != NULL:
        buffer.next, dropped = dropped, buffer
    while dropped != NULL:
        buffer, dropped = dropped, dropped.next
        give_back(<uint8_t*>buffer, buffer.capacity)


cdef bint drop_other(int index, FreeBuffer** dropped) noexcept nogil:
    """Moves a kept buffer of another class to `dropped`, round robin, since the class being freed is the one in demand.
    False if there is none. REQUIRES the lock.
    """
    global kept_bytes, next_dropped
    cdef FreeBuffer* found
    cdef int turn
    for turn in range(CLASSES):
        next_dropped = (next_dropped + 1) % CLASSES
        found = free_lists[next_dropped]
        if found == NULL or next_dropped == index:
            continue
        free_lists[next_dropped] = found.next
        kept_bytes -= class_bytes(next_dropped)
        found.next = dropped[0]
        dropped[0] = found
        return True
    return False


cdef uint8_t* pool_grow(uint8_t* memory, Py_ssize_t size, Py_ssize_t used, Py_ssize_t new_size) noexcept nogil:
    cdef Py_ssize_t capacity = pool_capacity(size), wanted = pool_capacity(new_size)
    cdef int index = class_of(new_size)
    cdef uint8_t* found = NULL
    if memory == NULL:
        return pool_acquire(new_size)
    if capacity == wanted:
        return memory
    if index >= 0:
        found = pop_kept(index)
    if found == NULL and capacity >= HUGE_PAGE_BYTES and can_move_pages and wanted > capacity:
        return regrow(memory, capacity, wanted)
    if found == NULL and wanted < HUGE_PAGE_BYTES:
        return <uint8_t*>realloc(memory, <size_t>wanted)        # may remap pages instead of touching fresh ones
    if found == NULL:
        found = fresh(wanted)
    if found == NULL:
        return NULL
    memcpy(found, memory, <size_t>used)
    pool_release(memory, size)
    return found


def pool_kept_bytes() -> int:
    """Bytes of free buffers in the pool."""
    return kept_bytes


def set_pool_limit(Py_ssize_t limit_bytes):
    """Sets the limit of free bytes in the pool; frees any excess now."""
    global kept_limit
    cdef int index
    cdef uint8_t* found
    if limit_bytes < 0:
        raise ValueError(f"the pool's limit cannot be negative: {limit_bytes}")
    kept_limit = limit_bytes
    for index in range(CLASSES - 1, -1, -1):
        while kept_bytes > kept_limit:
            found = pop_kept(index)
            if found == NULL:
                break
            give_back(found, class_bytes(index))


cdef class ByteBuffer:
    """Growable bytes in pooled memory, readable through the buffer protocol.

    While a memoryview of it is live, the buffer is frozen: growing or truncating raises BufferError. The last reference
    returns the memory to the pool.
    """

    def __cinit__(self, Py_ssize_t capacity=0):
        self.size = 0
        if capacity > 0:
            self.reserve(capacity)

    def __dealloc__(self):
        pool_release(self.data, self.capacity)

    cdef int reserve(self, Py_ssize_t more) except -1 nogil:
        cdef Py_ssize_t wanted = self.size + more
        cdef uint8_t* grown
        if wanted <= self.capacity and self.exports == 0:
            return 0
        if self.exports > 0:
            with gil:
                raise BufferError("a buffer cannot grow while a view of it lives")
        if wanted < self.capacity * 2:
            wanted = self.capacity * 2
        wanted = pool_capacity(wanted)
        grown = pool_grow(self.data, self.capacity, self.size, wanted)
        if grown == NULL:
            with gil:
                raise MemoryError(f"no memory for a buffer of {wanted} bytes")
        self.data = grown
        self.capacity = wanted
        return 0

    cdef int append(self, const uint8_t* data, Py_ssize_t size) except -1 nogil:
        if size > 0:
            self.reserve(size)
            memcpy(self.data + self.size, data, <size_t>size)
            self.size += size
        return 0

    cdef int truncate(self, Py_ssize_t size) except -1 nogil:
        if self.exports > 0 or size < 0 or size > self.size:
            with gil:
                raise BufferError(f"cannot cut a buffer of {self.size} bytes ({self.exports} views) to {size}")
        self.size = size
        return 0

    def write(self, const uint8_t[::1] data) -> None:
        """Appends the bytes of any buffer. BufferError while a view of this one is live."""
        if data.shape[0] > 0:
            self.append(&data[0], data.shape[0])

    def to_bytes(self) -> bytes:
        """A copy of the bytes written so far."""
        return (<const char*>self.data)[:self.size] if self.size > 0 else b""

    def __len__(self) -> int:
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef void* start = <void*>self.data if self.data != NULL else <void*>&NOTHING
        PyBuffer_FillInfo(view, self, start, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1


cdef uint8_t NOTHING = 0        # target of the pointer of an empty buffer
