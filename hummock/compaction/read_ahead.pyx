"""ReadAhead: windows of stored blocks of several runs, fetched by threads and consumed without the GIL.

Each run has a ring of windows in memory that is used again and again. Reader threads (Python, since object
stores are) fill them, several of a run at a time where it has room, first for the run that has the fewest; the
merge takes them through `RunIterator`, and neither side waits for the other's share of the GIL: a reader needs it
once for each window of several MB, the merge only to name a damaged file. The block and meta caches of the process
are passed by.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from hummock.byte_buffer cimport pool_capacity, pool_give, pool_take
from hummock.iterator.base cimport FORWARD, Columns, HummockIterator, Span
from hummock.key cimport Slice
from hummock.pthread cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hummock.sstable.block cimport Block
from hummock.sstable.index cimport SstableIndex

from hummock.errors import Corruption, HummockError
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.sstable.meta import SstableMeta

cdef uint64_t MAX_EPOCH = 0xFFFFFFFFFFFFFFFF
cdef Py_ssize_t LARGEST_WINDOW = 4 << 20
cdef Py_ssize_t SMALLEST_WINDOW = 64 << 10


cdef Slice slice_of(bytes data):
    cdef Slice out
    out.data, out.size = <const uint8_t*><const char*>data, len(data)
    return out


cdef class RunFiles:

    def __cinit__(self, list infos):
        self.infos, self.opened = infos, []


cdef class ReadAhead:
    """Fetches the blocks that may hold user keys of [`start`, `end`), file by file, of each of `runs`.

    `runs`: lists of SstableInfo, each ascending and disjoint. At most about `memory_bytes` wait or are consumed.
    `serve` is for reader threads; `stop` ends them, and whoever waits for a window, with `error`.
    """

    def __cinit__(self, store, runs, bytes start not None, end, Py_ssize_t memory_bytes):
        cdef Py_ssize_t share
        self.store, self.start, self.end = store, start, end
        self.runs = [RunFiles([info for info in run if info.largest >= start and (end is None or info.smallest < end)])
                     for run in runs]
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.changed, NULL)
        self.run_count = len(self.runs)
        self.rings = <Ring*>calloc(<size_t>self.run_count + 1, sizeof(Ring))
        if self.rings == NULL:
            raise MemoryError
        share = memory_bytes // (SLOTS * (self.run_count if self.run_count > 0 else 1))
        self.window_bytes = min(max(share, SMALLEST_WINDOW), LARGEST_WINDOW)
        for run in range(self.run_count):
            self.rings[run].is_done = not (<RunFiles>self.runs[run]).infos

    def __dealloc__(self):
        cdef int run, slot
        for run in range(self.run_count if self.rings != NULL else 0):
            for slot in range(SLOTS):
                pool_give(self.rings[run].slots[slot].data, self.rings[run].slots[slot].capacity)
        free(self.rings)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    @property
    def bytes_read(self) -> int:
        """From the object store so far."""
        return self.fetched_bytes

    @property
    def most_bytes(self) -> int:
        """What the windows of all runs hold at most, unless single blocks are larger."""
        return self.run_count * SLOTS * self.window_bytes

    def iterators(self) -> list:
        """A RunIterator for each run; each is for one thread, and all may be used by the same."""
        return [RunIterator(self, run) for run in range(self.run_count)]

    def stop(self, error=None) -> None:
        """Ends the readers, and a merge that still wants windows with `error`; the first call's error stands."""
        pthread_mutex_lock(&self.lock)
        if not self.is_stopped:
            self.error = error
            self.is_stopped = True
            pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def serve(self, tick=None) -> None:
        """Fetches windows until all are fetched or `stop` was called; for one reader thread of several.

        `tick()` is called after each window, under the GIL that the fetch took anyway. Whatever is raised here
        is raised from the merge.
        """
        cdef int run
        while True:
            with nogil:
                run = self.claim()
            if run < 0:
                return
            try:
                self.fetch(run, self.plan(run))
                if tick is not None:
                    tick()
            except BaseException as error:      # the merge must not wait for a reader that is gone
                self.stop(error)
                return

    cdef int claim(self) noexcept nogil:
        """A run whose next slot is now the caller's to plan; waits for one. -1: nothing is left to plan."""
        cdef int run, best
        cdef bint is_over
        pthread_mutex_lock(&self.lock)
        while True:
            best, is_over = -1, True
            for run in range(self.run_count):
                if self.rings[run].is_done:
                    continue
                is_over = False
                if not self.rings[run].is_claimed and self.rings[run].used < SLOTS and (
                        best < 0 or self.rings[run].used < self.rings[best].used):
                    best = run
            if best >= 0 or is_over or self.is_stopped:
                break
            pthread_cond_wait(&self.changed, &self.lock)
        if self.is_stopped:
            best = -1
        elif best >= 0:
            self.rings[best].is_claimed = True
        pthread_mutex_unlock(&self.lock)
        return best

    cdef Window* pop(self, int run) except? NULL nogil:
        cdef Ring* ring = &self.rings[run]
        cdef Window* found = NULL
        pthread_mutex_lock(&self.lock)
        if ring.is_held:
            ring.is_held = ring.slots[ring.head].is_ready = False
            ring.head = (ring.head + 1) % SLOTS
            ring.used -= 1
            pthread_cond_broadcast(&self.changed)
        while not self.is_stopped and (not ring.is_done if ring.used == 0 else not ring.slots[ring.head].is_ready):
            pthread_cond_wait(&self.changed, &self.lock)
        if ring.used > 0:
            ring.is_held = True
            found = &ring.slots[ring.head]
        pthread_mutex_unlock(&self.lock)
        if self.is_stopped:
            with gil:
                raise self.error if self.error is not None else HummockError("the reading of a range was stopped")
        return found

    cdef Window* plan(self, int run) except NULL:
        cdef Ring* ring = &self.rings[run]
        cdef Window* window
        cdef RunFiles files = self.runs[run]
        cdef Py_ssize_t end
        cdef const uint64_t* offsets
        if files.index is None:
            self.open_file(files)
        pthread_mutex_lock(&self.lock)
        window = &ring.slots[(ring.head + ring.used) % SLOTS]       # stays so while the run is claimed
        pthread_mutex_unlock(&self.lock)
        offsets, end = files.index.offsets, files.block + 1
        while end < files.end_block and <Py_ssize_t>(offsets[end + 1] - offsets[files.block]) <= self.window_bytes:
            end += 1
        window.index, window.file = <void*>files.index, files.file
        window.block, window.end = files.block, end
        window.is_first, window.is_last = files.block == files.start_block, end == files.end_block
        files.block = end
        if window.is_last:
            files.file, files.index = files.file + 1, None
        pthread_mutex_lock(&self.lock)
        ring.is_claimed = False
        ring.used += 1
        ring.is_done = files.file == len(files.infos)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return window

    cdef int fetch(self, int run, Window* window) except -1:
        """Reads the window's bytes into its memory; the merge may have it then."""
        cdef const uint64_t* offsets = (<SstableIndex>window.index).offsets
        cdef Py_ssize_t wanted = <Py_ssize_t>(offsets[window.end] - offsets[window.block])
        cdef Py_ssize_t most = <Py_ssize_t>offsets[(<SstableIndex>window.index).blocks]
        if wanted > window.capacity:
            pool_give(window.data, window.capacity)
            window.capacity = pool_capacity(max(wanted, min(self.window_bytes, most)))
            window.data = pool_take(window.capacity)
            if window.data == NULL:
                window.capacity = 0
                raise MemoryError(f"no memory for {wanted} bytes of a run")
        path = sstable_data_path((<RunFiles>self.runs[run]).infos[window.file].name)
        view = PyMemoryView_FromMemory(<char*>window.data, wanted, PyBUF_WRITE)
        try:
            got = self.store.get_into(path, offsets[window.block], view)
        finally:
            view.release()
        if got != wanted:
            raise Corruption(path, f"blocks {window.block} to {window.end - 1}", f"{wanted} bytes", f"{got}")
        self.fetched_bytes += wanted
        self.fetches += 1
        pthread_mutex_lock(&self.lock)
        window.is_ready = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return 0

    cdef int open_file(self, RunFiles files) except -1:
        """Reads the meta of the next file, and finds its blocks inside the range."""
        info = files.infos[files.file]
        path = sstable_meta_path(info.name)
        encoded = self.store.get(path)
        self.fetched_bytes += len(encoded)
        files.index = SstableMeta.decode(encoded, info, path).index
        # a window points to the index of its file: as many windows as there are slots, and the one being filled
        files.opened = [*files.opened[-SLOTS:], files.index]
        files.start_block = files.index.find_block(slice_of(self.start), MAX_EPOCH)
        files.end_block = files.index.blocks
        if self.end is not None and info.largest >= self.end:
            files.end_block = files.index.find_block(slice_of(self.end), MAX_EPOCH) + 1
        files.block = files.start_block
        return 0


cdef class RunIterator(HummockIterator):
    """The entries of one run inside the range, walked once from the first to the last.

    Invariant: while `valid`, `row` is a row of `block` below `end_row`.
    """

    def __cinit__(self, ReadAhead source not None, int run):
        self.source, self.run, self.direction = source, run, FORWARD
        self.block, self.file = Block(), -1
        self.start = slice_of(source.start)
        if source.end is not None:
            self.stop = slice_of(source.end)

    def __dealloc__(self):
        free(self.key)

    cdef int rewind(self) except -1 nogil:
        """REQUIRES: this is the first move."""
        if self.file >= 0:
            with gil:
                raise ValueError("a run is walked once")
        return self.enter()

    cdef int next(self) except -1 nogil:
        self.row += 1
        if self.row >= self.end_row:
            return self.enter()
        return self.show()

    cdef bint span(self, Span* out) noexcept nogil:
        if not self.block.span_from(self.row, out):
            return False
        out.end = self.end_row
        return True

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.row += rows
        if self.row >= self.end_row:
            return self.enter()
        return self.show()

    cdef bint columns(self, Columns* out) noexcept nogil:
        out.prefix = self.block.prefix
        out.key_offsets, out.key_data = self.block.suffix_offsets, self.block.suffixes
        out.value_offsets, out.value_data = self.block.value_offsets, self.block.values
        out.epochs, out.one_epoch = self.block.epochs, self.block.one_epoch
        out.marks, out.marks_at, out.marks_puts = self.block.tombstones, 0, False
        out.row, out.end = self.row, self.end_row
        out.longest_key = self.block.prefix.size + self.block.longest_suffix
        return True

    cdef int enter(self) except -1 nogil:
        self.valid, self.row, self.end_row = False, 0, 0
        while self.row >= self.end_row:
            self.index += 1
            if self.window == NULL or self.index >= self.window.end:
                self.window = self.source.pop(self.run)
                if self.window == NULL:
                    return 0
                self.index = self.window.block
                if self.window.file != self.file:
                    with gil:
                        self.file = self.window.file
                        self.block.object_name = sstable_data_path(
                            (<RunFiles>self.source.runs[self.run]).infos[self.file].name)
            self.load()
        self.rows_read += self.end_row - self.row
        self.source.rows += self.end_row - self.row
        self.valid = True
        return self.show()

    cdef int load(self) except -1 nogil:
        """Decodes block `index` and finds its rows inside the range."""
        cdef void* index = self.window.index
        cdef const uint64_t* offsets = (<SstableIndex>index).offsets
        cdef Py_ssize_t at = self.index, wanted
        cdef uint8_t* grown
        self.block.load(
            self.window.data + (offsets[at] - offsets[self.window.block]),
            <Py_ssize_t>(offsets[at + 1] - offsets[at]), (<SstableIndex>index).codecs[at],
            (<SstableIndex>index).raw_sizes[at], (<SstableIndex>index).checksums[at], at)
        if self.block.rows != (<SstableIndex>index).rows[at]:
            self.block.corrupt(at, "rows", (<SstableIndex>index).rows[at], self.block.rows)
        if (<SstableIndex>index).global_epoch > 0:
            self.block.stand_under((<SstableIndex>index).global_epoch, at)
        wanted = self.block.prefix.size + self.block.longest_suffix
        if wanted > self.key_capacity:
            grown = <uint8_t*>realloc(self.key, <size_t>(2 * wanted))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.key, self.key_capacity = grown, 2 * wanted
        if self.block.prefix.size > 0:
            memcpy(self.key, self.block.prefix.data, <size_t>self.block.prefix.size)
        return self.clip()

    cdef int clip(self) except -1 nogil:
        self.row, self.end_row = 0, self.block.rows
        if self.window.is_first and self.index == self.window.block and self.start.size > 0:
            self.row = self.block.lower_bound(self.start, MAX_EPOCH)
        if self.window.is_last and self.index == self.window.end - 1 and self.stop.data != NULL:
            self.end_row = self.block.lower_bound(self.stop, MAX_EPOCH)
        return 0

    cdef int show(self) noexcept nogil:
        cdef Slice suffix = self.block.suffix_at(self.row)
        cdef Py_ssize_t prefix = self.block.prefix.size
        if prefix == 0:
            self.user_key = suffix
        else:
            memcpy(self.key + prefix, suffix.data, <size_t>suffix.size)
            self.user_key.data, self.user_key.size = self.key, prefix + suffix.size
        self.epoch = self.block.epoch_at(self.row)
        self.value = self.block.value_at(self.row)
        return 0
