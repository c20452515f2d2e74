"""Departure: files that leave for the object store in pieces, while the rest of them is built.

A file's pieces are written one after the other, by whichever of the serving threads is free. Whoever builds hands
them over without the GIL, and waits while as many bytes as memory allows are on their way. Where the object is a
file of this machine its pieces are written without the GIL too.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from hummock.base.pthread cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hummock.columnar.buffer_pool cimport ByteBuffer, pool_give
from hummock.sstable.builder cimport PieceSink

from hummock.errors import without_frames
from hummock.object_store.base import sstable_data_path, sstable_meta_path

PIECE_BYTES = 2 << 20       # of a file, that leave together: one huge page, and the last one is soon written


cdef class LeavingFile(PieceSink):

    def __cinit__(self, Departure departure not None, str name not None):
        self.departure, self.name = departure, name

    def __dealloc__(self):
        cdef Piece* piece
        while self.first != NULL:
            piece, self.first = self.first, self.first.following
            pool_give(piece.data, piece.capacity)
            free(piece)

    cdef int leave(self, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil:
        return self.departure.push(self, data, size, capacity)

    cdef void begin(self) noexcept nogil:
        self.departure.begin(self)

    cdef void end(self) noexcept nogil:
        self.departure.end_data(self)


cdef class Departure:
    """The files of one attempt, of which about `room_bytes` may be on their way. One thread builds, several serve."""

    def __cinit__(self, store, Py_ssize_t room_bytes):
        self.store, self.room, self.files = store, room_bytes, {}
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.changed, NULL)

    def __dealloc__(self):
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    def file(self, str name not None) -> LeavingFile:
        """A new file, which counts once its builder begins; files begin in the order in which they were made."""
        cdef LeavingFile file = LeavingFile(self, name)
        self.files[name] = file
        return file

    cdef void begin(self, LeavingFile file) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if self.last != NULL:
            (<LeavingFile>self.last).following = <void*>file
        if self.first == NULL:
            self.first = <void*>file
        self.last = <void*>file
        file.is_begun = True
        pthread_mutex_unlock(&self.lock)

    cdef void end_data(self, LeavingFile file) noexcept nogil:
        """No more pieces come: a file of this machine is synced while the rest of the object is made."""
        pthread_mutex_lock(&self.lock)
        file.is_whole = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def finish(self, output) -> None:
        """The file of that name ends with what is left of its data. Raises what a serving thread met with."""
        cdef LeavingFile file = self.files[output.name]
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
            file.is_built = True
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.lock)

    def wait(self) -> list:
        """No more files begin: the outputs of all, less their data, once they are durable. Raises as `finish` does."""
        with nogil:
            pthread_mutex_lock(&self.lock)
            self.has_ended = True
            pthread_cond_broadcast(&self.changed)
            while not self.is_over():
                pthread_cond_wait(&self.changed, &self.lock)
            pthread_mutex_unlock(&self.lock)
        if self.has_failed:
            raise self.error
        return [(<LeavingFile>file).output for file in self.files.values() if (<LeavingFile>file).is_begun]

    def stop(self, error=None) -> None:
        """Ends the serving threads, and whoever builds with `error`; the first call's error stands."""
        pthread_mutex_lock(&self.lock)
        if not self.has_failed:
            self.error = error
            self.has_failed = True
            pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def close(self) -> None:
        """Gives up the files that did not get to their end. REQUIRES: nobody serves any more."""
        cdef LeavingFile file
        for file in self.files.values():
            writer, file.writer, file.file = file.writer, None, None
            if writer is not None:
                writer.abort()
            file.departure = None
        self.first = self.last = NULL
        self.files.clear()

    def serve(self) -> None:
        """Writes what leaves until all has left or somebody has failed; for one thread of several."""
        cdef LeavingFile file
        cdef void* claimed
        while True:
            with nogil:
                claimed = self.claim()
            if claimed == NULL:
                return
            file = <LeavingFile>claimed
            try:
                self.write_pieces(file)
                if self.is_at_end(file):
                    self.end(file)
            except BaseException as error:          # it is the builder's to raise
                self.stop(without_frames(error).with_traceback(None))
            self.release(file)

    cdef int push(self, LeavingFile file, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil:
        cdef Piece* piece = <Piece*>calloc(1, sizeof(Piece)) if size > 0 else NULL
        if piece == NULL:
            pool_give(data, capacity)
            if size > 0:
                with gil:
                    raise MemoryError
            return 0
        piece.data, piece.size, piece.capacity = data, size, capacity
        pthread_mutex_lock(&self.lock)
        while self.leaving > 0 and self.leaving + size > self.room and not self.has_failed:
            pthread_cond_wait(&self.changed, &self.lock)
        self.leaving += size
        if file.last == NULL:
            file.first = piece
        else:
            file.last.following = piece
        file.last = piece
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
                (<LeavingFile>found).is_served = True
            pthread_mutex_unlock(&self.lock)
            if found == NULL or not (<LeavingFile>found).has_file or not self.append_pieces(<LeavingFile>found):
                return found
            self.release(<LeavingFile>found)

    cdef void* find(self) noexcept nogil:
        cdef void* at = self.first
        if self.has_failed:
            return NULL
        while at != NULL:
            if not (<LeavingFile>at).is_served and not (<LeavingFile>at).is_done and (
                    (<LeavingFile>at).first != NULL or (<LeavingFile>at).is_built or (
                    (<LeavingFile>at).is_whole and (<LeavingFile>at).has_file and not (<LeavingFile>at).is_synced)):
                return at
            at = (<LeavingFile>at).following
        return NULL

    cdef bint is_over(self) noexcept nogil:
        cdef void* at = self.first
        if self.has_failed:
            return True
        while at != NULL and (<LeavingFile>at).is_done:
            at = (<LeavingFile>at).following
        self.first = at if at != NULL else self.first
        return self.has_ended and at == NULL

    cdef bint is_at_end(self, LeavingFile file) noexcept nogil:
        cdef bint answer
        pthread_mutex_lock(&self.lock)
        answer = file.is_built and file.first == NULL
        pthread_mutex_unlock(&self.lock)
        return answer

    cdef bint is_to_sync(self, LeavingFile file) noexcept nogil:
        cdef bint answer
        pthread_mutex_lock(&self.lock)
        answer = file.is_whole and file.first == NULL and not file.is_synced
        file.is_synced = file.is_synced or answer
        pthread_mutex_unlock(&self.lock)
        return answer

    cdef Piece* shift(self, LeavingFile file) noexcept nogil:
        cdef Piece* piece
        pthread_mutex_lock(&self.lock)
        piece = file.first
        if piece != NULL:
            file.first = piece.following
            if file.first == NULL:
                file.last = NULL
        pthread_mutex_unlock(&self.lock)
        return piece

    cdef bint append_pieces(self, LeavingFile file) noexcept nogil:
        """Writes all that waits to the file; False where the GIL is needed: at its end, or for a piece that failed."""
        cdef Piece* piece
        while True:
            piece = self.shift(file)
            if piece == NULL:
                if self.is_to_sync(file):
                    file.file.sync_ahead()
                return not file.is_built
            if file.file.append(piece.data, piece.size) != 0:
                file.has_refused = True
                pthread_mutex_lock(&self.lock)
                piece.following, file.first = file.first, piece
                if file.last == NULL:
                    file.last = piece
                pthread_mutex_unlock(&self.lock)
                return False
            self.let_go(piece)

    cdef void let_go(self, Piece* piece) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.leaving -= piece.size
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        pool_give(piece.data, piece.capacity)
        free(piece)

    cdef void release(self, LeavingFile file) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        file.is_served = False
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    cdef int write_pieces(self, LeavingFile file) except -1:
        """Writes what waits; what a file refused, and what goes elsewhere, by the writer, which tries again and names
        what fails.
        """
        cdef Piece* piece
        if file.writer is None and file.first != NULL:
            file.writer = self.store.create(sstable_data_path(file.name))
            file.file, file.has_file = file.writer.file, file.writer.file is not None
        while True:
            if file.has_file and not file.has_refused:
                with nogil:
                    self.append_pieces(file)
                if not file.has_refused:
                    return 0
            piece = self.shift(file)
            if piece == NULL:
                return 0
            file.has_refused = False
            view = PyMemoryView_FromMemory(<char*>piece.data, piece.size, PyBUF_READ)
            try:
                file.writer.write(view)
            finally:
                view.release()
                self.let_go(piece)

    cdef int end(self, LeavingFile file) except -1:
        """Both objects become durable, the data first."""
        file.writer.close()
        file.writer, file.has_file = None, False
        self.store.put(sstable_meta_path(file.name), file.output.meta, if_absent=True)
        pthread_mutex_lock(&self.lock)
        file.is_done = True
        pthread_mutex_unlock(&self.lock)
        return 0
