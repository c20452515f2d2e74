"""UploadQueue: uploads files to the object store in parts, while the rest of each file is still being built.

The parts of a file are written in order, by any free serving thread. The building thread enqueues them without the
GIL, and blocks while as many bytes as memory allows are in flight. Parts of a local file are written without the GIL
too. A small file needs no thread of its own: the building thread serves it when it is built.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from hummock.base.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_t, pthread_cond_wait,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from hummock.columnar.buffer_pool cimport ByteBuffer, pool_release
from hummock.object_store.file_writer cimport FileWriter
from hummock.sstable.builder cimport PartSink

from hummock.errors import without_frames
from hummock.object_store.base import sstable_data_path, sstable_meta_path

PART_BYTES = 2 << 20       # of one part: one huge page, and the last part is soon written

cdef enum FileState:                    # set by the building thread, except the last, under the queue's lock
    CREATED                             # not in the queue yet
    BUILDING                            # in the queue: parts arrive
    DATA_COMPLETE                       # no more parts, except those of `finish`: the data can be synced
    BUILT                               # all parts and `output` are there
    DURABLE                             # by the serving thread: both objects are


cdef struct UploadPart:
    uint8_t* data                       # pooled
    Py_ssize_t size
    Py_ssize_t capacity
    UploadPart* following

cdef class UploadQueue


@cython.final
cdef class UploadingFile(PartSink):
    """Guarded by the queue's lock, except for the fields used by the serving thread only."""
    cdef FileState state
    cdef UploadQueue queue
    cdef readonly str name
    cdef object output                  # SstableOutput without its data, once the file is built
    cdef object writer                  # ObjectWriter; serving thread only
    cdef FileWriter file                # of `writer`, or None; serving thread only
    cdef bint has_file                  # whether `file` is set, readable without the GIL
    cdef bint has_refused               # `file` failed to append the first queued part; serving thread only
    cdef UploadPart* first              # queued parts, oldest first
    cdef UploadPart* last
    cdef void* following                # UploadingFile, begun after this one
    cdef bint is_claimed                # by a serving thread
    cdef bint is_synced                 # by the serving thread, before the file is built

    def __cinit__(self, UploadQueue queue not None, str name not None):
        self.queue, self.name = queue, name

    def __dealloc__(self):
        cdef UploadPart* part
        while self.first != NULL:
            part, self.first = self.first, self.first.following
            pool_release(part.data, part.capacity)
            free(part)

    cdef bint has_work(self) noexcept nogil:
        """Whether a serving thread has something to write, sync or complete. REQUIRES the queue's lock."""
        return self.state < DURABLE and (self.first != NULL or self.state == BUILT or (
            self.state == DATA_COMPLETE and self.has_file and not self.is_synced))

    cdef int leave(self, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil:
        return self.queue.push(self, data, size, capacity)

    cdef void begin(self) noexcept nogil:
        self.queue.begin(self)

    cdef void end(self) noexcept nogil:
        self.queue.end_data(self)


@cython.final
cdef class UploadQueue:
    """The files of one attempt, about `room_bytes` of which may be in flight. One thread builds, several serve; unless
    `is_served`, the thread that builds them serves them afterwards, and nothing limits what is in flight until then.
    """
    cdef object store                   # ObjectStore
    cdef dict files                     # by name, in order of creation
    cdef void* first                    # UploadingFile, the oldest that is not done; borrowed from `files`
    cdef void* last                     # the newest that was begun
    cdef Py_ssize_t room                # limit of bytes in flight
    cdef bint is_served                 # by other threads, for which the building thread waits
    cdef Py_ssize_t leaving             # bytes in flight
    cdef bint has_ended                 # no more files will begin
    cdef bint has_failed
    cdef object error                   # the first one
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed

    def __cinit__(self, store, Py_ssize_t room_bytes, bint is_served=True):
        self.store, self.room, self.files, self.is_served = store, room_bytes, {}, is_served
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.changed, NULL)

    def __dealloc__(self):
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    def file(self, str name not None) -> UploadingFile:
        """A new file, queued once its builder begins; files begin in order of creation."""
        cdef UploadingFile file = UploadingFile(self, name)
        self.files[name] = file
        return file

    cdef void begin(self, UploadingFile file) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if self.last != NULL:
            (<UploadingFile>self.last).following = <void*>file
        if self.first == NULL:
            self.first = <void*>file
        self.last = <void*>file
        file.state = BUILDING
        pthread_mutex_unlock(&self.lock)

    cdef void end_data(self, UploadingFile file) noexcept nogil:
        """Marks the data as complete: a local file is synced while `finish` builds the meta."""
        pthread_mutex_lock(&self.lock)
        file.state = DATA_COMPLETE
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def finish(self, output) -> None:
        """Ends the file of that name with the rest of its data. Raises the error of a serving thread, if any."""
        cdef UploadingFile file = self.files[output.name]
        cdef ByteBuffer rest = output.data
        cdef uint8_t* data = rest.data
        cdef Py_ssize_t size = rest.size, capacity = rest.capacity
        if rest.exports > 0:
            raise BufferError(f"the data of file {output.name} is seen by somebody")
        rest.data, rest.size, rest.capacity = NULL, 0, 0
        file.output = output._replace(data=None)
        with nogil:
            self.push(file, data, size, capacity)
            pthread_mutex_lock(&self.lock)
            file.state = BUILT
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.lock)

    def wait(self) -> list:
        """Ends the queue and waits; the outputs of all files, without their data, all durable. Raises as `finish`."""
        pthread_mutex_lock(&self.lock)
        self.has_ended = True
        pthread_mutex_unlock(&self.lock)
        if not self.is_served:
            self.serve()
        with nogil:
            pthread_mutex_lock(&self.lock)
            pthread_cond_broadcast(&self.changed)
            while not self.is_over():
                pthread_cond_wait(&self.changed, &self.lock)
            pthread_mutex_unlock(&self.lock)
        if self.has_failed:
            raise self.error
        return [(<UploadingFile>file).output for file in self.files.values() if (<UploadingFile>file).state > CREATED]

    def stop(self, error=None) -> None:
        """Ends the serving threads, and makes the building thread raise `error`; the first call's error is kept."""
        pthread_mutex_lock(&self.lock)
        if not self.has_failed:
            self.error = error
            self.has_failed = True
            pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def close(self) -> None:
        """Aborts unfinished files. REQUIRES that no thread serves any more."""
        cdef UploadingFile file
        for file in self.files.values():
            writer, file.writer, file.file = file.writer, None, None
            if writer is not None:
                writer.abort()
            file.queue = None
        self.first = self.last = NULL
        self.files.clear()

    def serve(self) -> None:
        """Writes queued parts until all files are done or a thread has failed; for one thread of several."""
        cdef UploadingFile file
        cdef void* claimed
        while True:
            with nogil:
                claimed = self.claim()
            if claimed == NULL:
                return
            file = <UploadingFile>claimed
            try:
                self.write_parts(file)
                if self.is_at_end(file):
                    self.end(file)
            except BaseException as error:          # raised by the building thread
                self.stop(without_frames(error).with_traceback(None))
            self.release(file)

    cdef int push(self, UploadingFile file, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil:
        cdef UploadPart* part = <UploadPart*>calloc(1, sizeof(UploadPart)) if size > 0 else NULL
        if part == NULL:
            pool_release(data, capacity)
            if size > 0:
                with gil:
                    raise MemoryError
            return 0
        part.data, part.size, part.capacity = data, size, capacity
        pthread_mutex_lock(&self.lock)
        while self.is_served and self.leaving > 0 and self.leaving + size > self.room and not self.has_failed:
            pthread_cond_wait(&self.changed, &self.lock)
        self.leaving += size
        if file.last == NULL:
            file.first = part
        else:
            file.last.following = part
        file.last = part
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        if self.has_failed:
            with gil:
                raise self.error
        return 0

    cdef void* claim(self) noexcept nogil:
        cdef void* found = NULL
        while True:
            pthread_mutex_lock(&self.lock)
            while True:
                found = self.find()
                if found != NULL or self.is_over():
                    break
                pthread_cond_wait(&self.changed, &self.lock)
            if found != NULL:
                (<UploadingFile>found).is_claimed = True
            pthread_mutex_unlock(&self.lock)
            if found == NULL or not (<UploadingFile>found).has_file or not self.append_parts(<UploadingFile>found):
                return found
            self.release(<UploadingFile>found)

    cdef void* find(self) noexcept nogil:
        cdef void* at = self.first
        if self.has_failed:
            return NULL
        while at != NULL:
            if not (<UploadingFile>at).is_claimed and (<UploadingFile>at).has_work():
                return at
            at = (<UploadingFile>at).following
        return NULL

    cdef bint is_over(self) noexcept nogil:
        cdef void* at = self.first
        if self.has_failed:
            return True
        while at != NULL and (<UploadingFile>at).state == DURABLE:
            at = (<UploadingFile>at).following
        self.first = at if at != NULL else self.first
        return self.has_ended and at == NULL

    cdef bint is_at_end(self, UploadingFile file) noexcept nogil:
        cdef bint answer
        pthread_mutex_lock(&self.lock)
        answer = file.state == BUILT and file.first == NULL
        pthread_mutex_unlock(&self.lock)
        return answer

    cdef bint is_to_sync(self, UploadingFile file) noexcept nogil:
        cdef bint answer
        pthread_mutex_lock(&self.lock)
        answer = file.state >= DATA_COMPLETE and file.first == NULL and not file.is_synced
        file.is_synced = file.is_synced or answer
        pthread_mutex_unlock(&self.lock)
        return answer

    cdef UploadPart* pop_part(self, UploadingFile file) noexcept nogil:
        cdef UploadPart* part
        pthread_mutex_lock(&self.lock)
        part = file.first
        if part != NULL:
            file.first = part.following
            if file.first == NULL:
                file.last = NULL
        pthread_mutex_unlock(&self.lock)
        return part

    cdef bint append_parts(self, UploadingFile file) noexcept nogil:
        """Appends all queued parts to the file; False if the GIL is needed: at its end, or for a part that failed."""
        cdef UploadPart* part
        while True:
            part = self.pop_part(file)
            if part == NULL:
                if self.is_to_sync(file):
                    file.file.sync_ahead()
                return file.state < BUILT
            if file.file.append(part.data, part.size) != 0:
                file.has_refused = True
                pthread_mutex_lock(&self.lock)
                part.following, file.first = file.first, part
                if file.last == NULL:
                    file.last = part
                pthread_mutex_unlock(&self.lock)
                return False
            self.let_go(part)

    cdef void let_go(self, UploadPart* part) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.leaving -= part.size
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        pool_release(part.data, part.capacity)
        free(part)

    cdef void release(self, UploadingFile file) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        file.is_claimed = False
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    cdef int write_parts(self, UploadingFile file) except -1:
        """Writes queued parts; a part that `file` refused, or of an object elsewhere, through the writer, which retries
        and reports errors.
        """
        cdef UploadPart* part
        if file.writer is None and file.first != NULL:
            file.writer = self.store.create(sstable_data_path(file.name))
            file.file, file.has_file = file.writer.file, file.writer.file is not None
        while True:
            if file.has_file and not file.has_refused:
                with nogil:
                    self.append_parts(file)
                if not file.has_refused:
                    return 0
            part = self.pop_part(file)
            if part == NULL:
                return 0
            file.has_refused = False
            view = PyMemoryView_FromMemory(<char*>part.data, part.size, PyBUF_READ)
            try:
                file.writer.write(view)
            finally:
                view.release()
                self.let_go(part)

    cdef int end(self, UploadingFile file) except -1:
        """Makes both objects durable, the data first."""
        file.writer.close()
        file.writer, file.has_file = None, False
        self.store.put(sstable_meta_path(file.name), file.output.meta, if_absent=True)
        pthread_mutex_lock(&self.lock)
        file.state = DURABLE
        pthread_mutex_unlock(&self.lock)
        return 0
