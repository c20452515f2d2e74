"""FileWriter: writes, syncs and publishes a file without the GIL.

Beside a busy Python thread, each system call that releases the GIL waits a switch interval to reacquire it; here all
steps run under one release. Every system call whose failure matters goes through a table, so that tests can inject
faults.
"""

from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport uint8_t, uintptr_t

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <stdio.h>
    #include <unistd.h>
    typedef struct {
        int (*open)(const char *path, int flags, int mode);
        int (*close)(int descriptor);
        ssize_t (*pwrite)(int descriptor, const void *data, size_t size, off_t position);
        int (*fsync)(int descriptor);
        int (*ftruncate)(int descriptor, off_t size);
        int (*link)(const char *from, const char *to);
        int (*rename)(const char *from, const char *to);
        int (*unlink)(const char *path);
    } hummock_file_calls;
    static int hummock_open(const char *path, int flags, int mode) { return open(path, flags, mode); }
    static int hummock_fsync(int descriptor) {
    #ifdef F_FULLFSYNC          /* fsync of macOS leaves what was written in the cache of the drive */
        if (fcntl(descriptor, F_FULLFSYNC) == 0) return 0;      /* else the file system has none */
    #endif
        return fsync(descriptor);
    }
    static int hummock_start_writeback(int descriptor, off_t position, off_t size) {
    #ifdef SYNC_FILE_RANGE_WRITE
        return sync_file_range(descriptor, position, size, SYNC_FILE_RANGE_WRITE);
    #else
        (void)descriptor, (void)position, (void)size;
        return 0;
    #endif
    }
    static hummock_file_calls hummock_calls = {
        hummock_open, close, pwrite, hummock_fsync, ftruncate, link, rename, unlink};
    """
    ctypedef struct FileCalls "hummock_file_calls":
        int (*open)(const char*, int, int) noexcept nogil
        int (*close)(int) noexcept nogil
        Py_ssize_t (*pwrite)(int, const void*, size_t, Py_ssize_t) noexcept nogil
        int (*fsync)(int) noexcept nogil
        int (*ftruncate)(int, Py_ssize_t) noexcept nogil
        int (*link)(const char*, const char*) noexcept nogil
        int (*rename)(const char*, const char*) noexcept nogil
        int (*unlink)(const char*) noexcept nogil
    FileCalls calls "hummock_calls"
    int start_writeback "hummock_start_writeback"(int, Py_ssize_t, Py_ssize_t) noexcept nogil
    int O_WRONLY, O_RDONLY, O_CREAT, O_EXCL, O_CLOEXEC, O_DIRECTORY

STEPS = WRITE, SYNC, PUBLISH, SYNC_DIRECTORY = "write", "sync", "publish", "sync of the directory"


cdef class FileWriter:
    """The file at `temporary`, created by the first write. Each step of `finish` takes effect once, despite retries.

    Used by one thread at a time. Writes go through the page cache: what a flush writes a compaction reads next, and
    what a compaction writes takes the place of blocks that were read. A file that need not be durable is never synced.
    """

    def __cinit__(self, bytes temporary not None, bint is_durable):
        self.temporary, self.path, self.is_durable = temporary, temporary, is_durable
        self.descriptor = -1

    def __dealloc__(self):
        self.release()

    @property
    def was_synced(self) -> bool:
        return self.is_synced

    @property
    def was_published(self) -> bool:
        return self.is_published

    def write(self, const uint8_t[::1] data) -> int:
        """Appends all of `data` and returns 0, or nothing and returns an errno. REQUIRES that it is not finished."""
        cdef int failure
        cdef Py_ssize_t size = data.shape[0]
        cdef const uint8_t* start = &data[0] if size > 0 else NULL
        with nogil:
            failure = self.write_fully(start, size)
        return failure

    def finish(self, bytes target, bytes directory, bint if_absent, const uint8_t[::1] data=None) -> tuple | None:
        """Writes `data`, syncs, publishes as `target`, removes the temporary name, syncs `directory`.

        Returns None, or the failed step and its errno; the next call resumes there, without `data` if it was written.
        """
        cdef Py_ssize_t size = 0 if data is None else data.shape[0]
        cdef const uint8_t* start = &data[0] if size > 0 else NULL
        cdef const char* path = target
        cdef const char* parent = directory
        cdef int step = 0, failure = 0
        with nogil:
            if not self.is_synced:
                failure = self.write_fully(start, size)
            if failure == 0:
                step, failure = 1, self.sync()
            if failure == 0:
                step, failure = 2, self.publish(path, if_absent)
            if failure == 0 and self.is_durable:
                step, failure = 3, sync_directory(parent)
        return None if failure == 0 else (STEPS[step], failure)

    def pop_appended(self) -> int:
        """Bytes written by `append` since the last call."""
        taken, self.appended = self.appended, 0
        return taken

    def note_published(self) -> None:
        """Notes that the target is this file already, published by a call that reported an error."""
        self.is_published = True
        with nogil:
            calls.unlink(self.path)

    def discard(self) -> None:
        """Removes the temporary file; if that fails, a later opening of the store does."""
        with nogil:
            self.release()
            if not self.is_published:
                calls.unlink(self.path)

    cdef int append(self, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        cdef int failure = self.write_fully(data, size)
        if failure == 0:
            self.appended += size
            if self.is_durable:         # the disk works while the rest is built; `sync` reports its errors
                start_writeback(self.descriptor, self.size - size, size)
        return failure

    cdef int open(self) noexcept nogil:
        if self.descriptor >= 0:
            return 0
        while True:
            self.descriptor = calls.open(self.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
            if self.descriptor >= 0:
                return 0
            if errno != EINTR:
                return errno

    cdef int write_fully(self, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t done = 0, taken
        cdef int failure = self.open()
        if failure != 0:
            return failure
        while done < size:
            taken = calls.pwrite(self.descriptor, data + done, <size_t>(size - done), self.size + done)
            if taken >= 0:
                done += taken
            elif errno != EINTR:
                self.has_failed = True
                return errno if errno != 0 else EIO
        self.size += size
        return 0

    cdef int sync(self) noexcept nogil:
        cdef int failure
        if self.is_synced or self.sync_failure != 0:
            return self.sync_failure
        failure = self.open()
        if failure == 0 and self.has_failed and calls.ftruncate(self.descriptor, self.size) != 0:
            failure = errno
        if failure == 0:
            failure = self.sync_failure = sync_file(self.descriptor) if self.is_durable else self.close()
        if failure == 0:
            self.is_synced = True
            self.release()
        return failure

    cdef int close(self) noexcept nogil:
        """Closes the descriptor; a network file system may report write errors only here."""
        cdef int closed = calls.close(self.descriptor)
        self.descriptor = -1
        return 0 if closed == 0 or errno == EINTR else errno

    cdef void sync_ahead(self) noexcept nogil:
        self.sync()

    cdef int publish(self, const char* target, bint if_absent) noexcept nogil:
        if self.is_published:
            return 0
        if (calls.link(self.path, target) if if_absent else calls.rename(self.path, target)) != 0:
            return errno
        self.is_published = True
        if if_absent:
            calls.unlink(self.path)
        return 0

    cdef void release(self) noexcept nogil:
        if self.descriptor >= 0:
            calls.close(self.descriptor)        # closed even on error, and durable data was synced
        self.descriptor = -1


cdef int sync_file(int descriptor) noexcept nogil:
    while calls.fsync(descriptor) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int sync_directory(const char* path) noexcept nogil:
    cdef int descriptor, failure
    while True:
        descriptor = calls.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
        if descriptor >= 0:
            break
        if errno != EINTR:
            return errno
    failure = sync_file(descriptor)
    if calls.close(descriptor) != 0 and failure == 0:
        failure = errno
    return failure


def call_slots() -> dict:
    """Address of the table entry of each call, by name."""
    return {
        "open": <uintptr_t>&calls.open, "close": <uintptr_t>&calls.close, "pwrite": <uintptr_t>&calls.pwrite,
        "fsync": <uintptr_t>&calls.fsync, "ftruncate": <uintptr_t>&calls.ftruncate, "link": <uintptr_t>&calls.link,
        "rename": <uintptr_t>&calls.rename, "unlink": <uintptr_t>&calls.unlink,
    }
