"""FdCache: descriptors of objects in local files, for compiled code that reads them without the GIL.

Objects are immutable, so a descriptor reads the same bytes even after its name is deleted; reads of a truncated file
are short. After a short read or a checksum mismatch the caller falls back to the store's `get`, which reports the
error. A reader calls `enter` and `leave` under the GIL; a file evicted from the table is closed when it has no readers.
A forked child has its own descriptors, and reads are positional, so nothing but the bytes is shared.

Lookups in a file that the page cache lacks wait for the disk one by one. Once they have waited for an eighth of its
bytes within a second, about half the time in which a disk reads all of it in order, each further wait reads a step of
the file in order as well, and the kernel reads ahead of it. This is done once for each open file, so that files which
memory cannot hold cost one more reading.
"""

import resource

cimport cython
from libc.errno cimport EINTR, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from hummock.base.posix cimport monotonic_ns

cdef extern from "fcntl.h" nogil:
    int O_CLOEXEC
    int O_NOFOLLOW
    int O_RDONLY
    int open(const char* path, int flags) noexcept

cdef extern from "unistd.h" nogil:
    int close(int descriptor) noexcept
    Py_ssize_t pread(int descriptor, void* target, size_t size, int64_t start) noexcept

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <sys/uio.h>
    #include <time.h>
    /* What of the bytes is in memory; -1 if nothing, or if the system does not tell. */
    static ssize_t read_of_memory(int descriptor, void *target, size_t size, int64_t start) {
    #if defined(RWF_NOWAIT) && !defined(HUMMOCK_PORTABLE)
        struct iovec part = {target, size};
        return preadv2(descriptor, &part, 1, start, RWF_NOWAIT);
    #else
        errno = EOPNOTSUPP;
        return -1;
    #endif
    }
    /* No more is read than asked for, or than `read_soon` announces. */
    static void read_at_random(int descriptor) {
    #if defined(POSIX_FADV_RANDOM) && !defined(HUMMOCK_PORTABLE)
        (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    #endif
    }
    /* The kernel reads ahead of reads in order. */
    static void read_in_order(int descriptor) {
    #if defined(POSIX_FADV_SEQUENTIAL) && !defined(HUMMOCK_PORTABLE)
        (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    #endif
    }
    /* A hint that these bytes are read soon; of no effect where the system takes none. */
    static void read_soon(int descriptor, int64_t start, int64_t size) {
    #if defined(HUMMOCK_PORTABLE)
    #elif defined(POSIX_FADV_WILLNEED)
        (void)posix_fadvise(descriptor, start, size, POSIX_FADV_WILLNEED);
    #elif defined(F_RDADVISE)
        struct radvisory wanted = {start, (int)size};
        (void)fcntl(descriptor, F_RDADVISE, &wanted);
    #endif
    }
    static int64_t size_of(int descriptor) {
        struct stat found;
        return fstat(descriptor, &found) ? 0 : (int64_t)found.st_size;
    }
    """
    int64_t size_of(int descriptor) noexcept
    void read_at_random(int descriptor) noexcept
    void read_in_order(int descriptor) noexcept
    void read_soon(int descriptor, int64_t start, int64_t size) noexcept
    Py_ssize_t read_of_memory(int descriptor, void* target, size_t size, int64_t start) noexcept
    int64_t add_to "__atomic_add_fetch"(int64_t* counter, int64_t more, int order) noexcept
    int64_t exchange "__atomic_exchange_n"(int64_t* counter, int64_t value, int order) noexcept
    int __ATOMIC_RELAXED

cdef enum:
    WARM_SHARE = 8                      # a file is read in order after waits for one in so many of its bytes
    WARM_WITHIN_NS = 1_000_000_000
    WARM_STEP = 1 << 20                 # bytes
    SCRATCH_BYTES = 64 << 10

FILES_LIMIT = 1_024                     # open files
FILES_SHARE = 4                         # and at most one in four of the process's descriptors


@cython.final
cdef class FileReads:

    def pop_counts(self) -> tuple[int, int]:
        """Calls and bytes since the last call."""
        return exchange(&self.calls, 0, __ATOMIC_RELAXED), exchange(&self.bytes, 0, __ATOMIC_RELAXED)


@cython.final
cdef class CachedFd:

    def __cinit__(self, str path not None, FileReads reads not None):
        self.path, self.reads, self.descriptor = path, reads, -1

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)

    cdef bint enter(self) noexcept:
        if self.is_closing:
            return False
        self.was_used = True
        self.users += 1
        return True

    cdef void leave(self) noexcept:
        self.users -= 1
        if self.is_closing and self.users == 0:
            self.shut()

    cdef void shut(self) noexcept:
        close(self.descriptor)
        self.descriptor = -1

    cdef Py_ssize_t read(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil:
        cdef Py_ssize_t done = 0, got
        while done < size:
            got = pread(self.descriptor, target + done, <size_t>(size - done), <int64_t>start + done)
            if got > 0:
                done += got
            elif got == 0:
                break
            elif errno != EINTR:
                return -1
        self.count(done)
        return done

    cdef Py_ssize_t read_now(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil:
        cdef Py_ssize_t got = read_of_memory(self.descriptor, target, <size_t>size, <int64_t>start)
        if got > 0:
            self.count(got)
        elif got < 0 and errno == EOPNOTSUPP:
            self.warmed = self.size     # what waits is unknown
        self.is_cold = got != size
        return got

    cdef void expect(self, uint64_t start, uint64_t size) noexcept nogil:
        read_soon(self.descriptor, <int64_t>start, <int64_t>size)

    cdef void waited(self, Py_ssize_t size) noexcept nogil:
        cdef int64_t now
        if self.warmed >= self.size:
            return
        now = monotonic_ns()
        if now - self.waited_since > WARM_WITHIN_NS:
            self.waited_since, self.waited_bytes = now, 0
        self.waited_bytes += size
        if self.waited_bytes * WARM_SHARE >= self.size:
            self.warm()

    cdef void warm(self) noexcept nogil:
        """Reads the next step of the file into the page cache."""
        cdef int64_t at = add_to(&self.warmed, WARM_STEP, __ATOMIC_RELAXED) - WARM_STEP, end = at + WARM_STEP
        cdef void* scratch = malloc(SCRATCH_BYTES)
        cdef Py_ssize_t got = SCRATCH_BYTES
        if at == 0:
            read_in_order(self.descriptor)
        while scratch != NULL and at < end and got > 0:
            got = pread(self.descriptor, scratch, SCRATCH_BYTES, at)
            at += got
        free(scratch)
        if end >= self.size:
            read_at_random(self.descriptor)

    cdef void count(self, Py_ssize_t size) noexcept nogil:
        add_to(&self.reads.calls, 1, __ATOMIC_RELAXED)
        add_to(&self.reads.bytes, size, __ATOMIC_RELAXED)

    @property
    def is_open(self) -> bool:
        return not self.is_closing

    def close(self) -> None:
        """Closes the file, now or after its last reader leaves."""
        if not self.is_closing:
            self.is_closing = True
            if self.users == 0:
                self.shut()

    def read_at(self, uint64_t start, Py_ssize_t size) -> bytes | None:
        """The bytes as far as they exist; None: read error, or the file was closed."""
        cdef bytearray out = bytearray(size)
        cdef uint8_t* target = out
        cdef Py_ssize_t got
        if not self.enter():
            return None
        try:
            with nogil:
                got = self.read(target, size, start)
        finally:
            self.leave()
        return None if got < 0 else bytes(out[:got])


cdef class FdCache:
    """At most `limit` files by path; eviction is second chance (CLOCK)."""

    def __cinit__(self, int limit=0):
        self.limit = limit if limit > 0 else files_limit()
        self.reads, self.files = FileReads(), {}

    def get(self, str path) -> CachedFd | None:
        return self.files.get(path)

    def open(self, str path not None, bytes file not None) -> CachedFd | None:
        """The CachedFd of the object `path`, which is the file `file`; None: it cannot be opened."""
        cdef CachedFd found = CachedFd(path, self.reads), other
        cdef const char* name = file
        with nogil:
            found.descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        if found.descriptor < 0:
            return None
        read_at_random(found.descriptor)
        found.size = size_of(found.descriptor)
        other = self.files.get(path)
        if other is not None:               # another thread was first
            return other
        self.make_room()
        self.files[path] = found
        return found

    cdef make_room(self):
        cdef CachedFd oldest
        while len(self.files) >= self.limit:
            path = next(iter(self.files))
            oldest = self.files.pop(path)
            if oldest.was_used:
                oldest.was_used = False
                self.files[path] = oldest
            else:
                oldest.close()

    def forget(self, paths) -> None:
        """Closes the files of these objects, which are deleted or replaced."""
        for path in paths:
            found = self.files.pop(path, None)
            if found is not None:
                found.close()

    def close(self) -> None:
        """Closes all files; others may be opened afterwards."""
        self.forget(list(self.files))

    def __len__(self) -> int:
        return len(self.files)


def files_limit() -> int:
    """How many descriptors of this process the cache may use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return FILES_LIMIT
    return max(1, min(FILES_LIMIT, soft // FILES_SHARE))
