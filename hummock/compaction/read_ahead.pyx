"""ReadAhead: prefetches stored blocks of several runs, so that the merge gets them without the GIL.

Each run has a ring of windows in reused memory. Reader threads (Python, since object stores are) fill them, several per
run where there are free slots, first for the run that has the fewest; the merge consumes them through `RunIterator`s. A
local file is one window: a reader opens it, and the merge reads it in pieces that are still in the CPU cache when they
are decoded, after requesting readahead from the kernel long before. So a reader needs the GIL once for each file, else
for each window of several MB, and the merge never. The caches of the process are bypassed.
"""

from functools import partial
from itertools import chain

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from hummock.base.key cimport MAX_EPOCH, slice_of
from hummock.base.posix cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hummock.columnar.buffer_pool cimport ByteBuffer, pool_capacity, pool_release, pool_acquire
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block
from hummock.sstable.index cimport SstableIndex

from hummock.compaction.index_cache import IndexCache
from hummock.errors import Corruption, HummockError
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.sstable.inline import with_inline
from hummock.sstable.meta import decode_index

cdef Py_ssize_t LARGEST_WINDOW = 4 << 20
cdef Py_ssize_t SMALLEST_WINDOW = 64 << 10
cdef Py_ssize_t BITES_BYTES = 512 << 10         # for all runs: what fits in a core's cache beside the rest
cdef Py_ssize_t LARGEST_BITE = 128 << 10
cdef Py_ssize_t SMALLEST_BITE = 32 << 10
cdef uint64_t EXPECTED_BYTES = 2 << 20          # distance of the kernel's readahead
cdef uint64_t EXPECTED_STEP = 256 << 10
cdef int64_t TICK_BYTES = 32 << 20              # between two ticks while the merge reads local files
cdef int NO_RUN = -1
cdef int TICK = -2
cdef int NONE_NOW = -3
FILE_READERS = 4                                # threads
STORE_READERS = 8                               # a remote store serves many requests in parallel
READERS_OF_A_RUN = 3                            # as many windows as are ready while one is consumed


cdef class RunFiles:

    def __cinit__(self, list infos):
        self.infos, self.opened = infos, []


cdef class ReadAhead:
    """Fetches the blocks that may hold user keys of [`start`, `end`), file by file, of each of `runs`.

    `runs`: lists of SstableInfo, each ascending and disjoint. About `memory_bytes` at most are buffered. `indexes`:
    IndexCache shared with other ranges of the same files, if any. `serve` is for reader threads; `stop` ends them, and
    whatever waits for a window, with `error`.
    """

    def __cinit__(self, store, runs, bytes start not None, end, Py_ssize_t memory_bytes, indexes=None):
        cdef Py_ssize_t share
        runs = [tuple(run) for run in runs]
        self.store, self.start, self.end = with_inline(store, chain.from_iterable(runs)), start, end
        self.indexes = IndexCache() if indexes is None else indexes
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
        self.bite_bytes = min(max(BITES_BYTES // max(self.run_count, 1), SMALLEST_BITE), LARGEST_BITE)
        for run in range(self.run_count):
            self.rings[run].is_done = not (<RunFiles>self.runs[run]).infos

    def __dealloc__(self):
        cdef int run, slot
        for run in range(self.run_count if self.rings != NULL else 0):
            for slot in range(SLOTS):
                pool_release(self.rings[run].slots[slot].data, self.rings[run].slots[slot].capacity)
        free(self.rings)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the object store so far."""
        return self.fetched_bytes

    @property
    def readers(self) -> int:
        """Number of threads that should call `serve`."""
        stored = [info.name for files in self.runs for info in files.infos[:1] if not info.inline_data]
        if not stored:
            return min(1, self.run_count)
        if self.store.open_file(sstable_data_path(stored[0])) is not None:
            return min(FILE_READERS, self.run_count)
        return min(STORE_READERS, READERS_OF_A_RUN * self.run_count)

    def stop(self, error=None) -> None:
        """Ends the readers, and with `error` a merge that needs more windows; the first call's error counts."""
        pthread_mutex_lock(&self.lock)
        if not self.is_stopped:
            self.error = error
            self.is_stopped = True
            pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def serve(self, tick=None) -> None:
        """Fetches windows until all are consumed or `stop` was called; for one reader thread of several.

        `tick()` is called after each read from the store, and as often while the merge reads local files. Errors here
        are raised from the merge.
        """
        cdef int run
        cdef Window* window
        while True:
            run = self.claim(False)
            if run == NONE_NOW:
                with nogil:
                    run = self.claim(True)
            if run == NO_RUN:
                return
            try:
                if run != TICK:
                    window = self.plan(run)
                    if window.source != NULL:
                        self.publish(window)
                        continue
                    self.fetch(run, window, window.block, window.end)
                    self.publish(window)
                if tick is not None:
                    tick()
            except BaseException as error:      # the merge must not wait for a dead reader
                self.stop(error)
                return

    def close(self) -> None:
        """Releases the files. REQUIRES that no thread serves or iterates any more."""
        cdef CachedFd source
        for files in self.runs:
            for _, source, _ in (<RunFiles>files).opened:
                if source is not None:
                    source.leave()
            (<RunFiles>files).opened = []

    cdef int claim(self, bint may_wait) noexcept nogil:
        """A run whose next slot the caller may plan, or TICK. NO_RUN: all is consumed."""
        cdef int run, best
        cdef bint is_over
        pthread_mutex_lock(&self.lock)
        while True:
            best, is_over = NO_RUN, True
            for run in range(self.run_count):
                is_over = is_over and self.rings[run].is_done and self.rings[run].used == 0
                if not self.rings[run].is_done and not self.rings[run].is_claimed and self.rings[run].used < SLOTS and (
                        best < 0 or self.rings[run].used < self.rings[best].used):
                    best = run
            if best == NO_RUN and self.uncounted_bytes >= TICK_BYTES:
                best, self.uncounted_bytes = TICK, 0
            if best != NO_RUN or is_over or self.is_stopped:
                break
            if not may_wait:
                best = NONE_NOW
                break
            pthread_cond_wait(&self.changed, &self.lock)
        if self.is_stopped:
            best = NO_RUN
        elif best >= 0:
            self.rings[best].is_claimed = True
        pthread_mutex_unlock(&self.lock)
        return best

    cdef int pop(self, int run, Window** window) except -1 nogil:
        cdef Ring* ring = &self.rings[run]
        window[0] = NULL
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
            window[0] = &ring.slots[ring.head]
        pthread_mutex_unlock(&self.lock)
        if self.is_stopped:
            self.raise_stopped()
        return 0

    cdef int raise_stopped(self) except -1 with gil:
        raise self.error if self.error is not None else HummockError("the reading of a range was stopped")

    cdef Window* plan(self, int run) except NULL:
        cdef Ring* ring = &self.rings[run]
        cdef Window* window
        cdef RunFiles files = self.runs[run]
        cdef Py_ssize_t end
        cdef const uint64_t* offsets
        cdef SstableIndex index
        cdef CachedFd source
        cdef Block decoder
        if files.block == files.end_block:
            self.open_file(files)
        index, source, decoder = files.opened[len(files.opened) - 1]
        pthread_mutex_lock(&self.lock)
        window = &ring.slots[(ring.head + ring.used) % SLOTS]       # stable while the run is claimed
        pthread_mutex_unlock(&self.lock)
        offsets, end = index.offsets, files.block + 1
        while end < files.end_block and (
                source is not None or <Py_ssize_t>(offsets[end + 1] - offsets[files.block]) <= self.window_bytes):
            end += 1
        window.index, window.decoder, window.file = <void*>index, <void*>decoder, files.file
        window.source = <void*>source if source is not None else NULL
        window.block = window.held = window.held_end = files.block
        window.end, window.expected = end, offsets[files.block]
        window.is_first, window.is_last = files.block == files.start_block, end == files.end_block
        files.block = end
        files.file += window.is_last
        pthread_mutex_lock(&self.lock)
        ring.is_claimed = False
        ring.used += 1
        ring.is_done = files.file == len(files.infos)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return window

    cdef int make_room(self, Window* window, Py_ssize_t wanted, Py_ssize_t usual) noexcept nogil:
        if wanted <= window.capacity:
            return 0
        pool_release(window.data, window.capacity)
        window.capacity = pool_capacity(wanted if wanted > usual else usual)
        window.data = pool_acquire(window.capacity)
        if window.data == NULL:
            window.capacity = 0
            return -1
        return 0

    cdef int hold(self, int run, Window* window, Py_ssize_t block) except -1 nogil:
        cdef const uint64_t* offsets = (<SstableIndex>window.index).offsets
        cdef Py_ssize_t end = block + 1, wanted
        cdef bint is_stopped
        while end < window.end and <Py_ssize_t>(offsets[end + 1] - offsets[block]) <= self.bite_bytes:
            end += 1
        wanted = <Py_ssize_t>(offsets[end] - offsets[block])
        while window.expected < offsets[window.end] and window.expected < offsets[end] + EXPECTED_BYTES:
            (<CachedFd>window.source).expect(window.expected, EXPECTED_STEP)
            window.expected += EXPECTED_STEP
        if self.make_room(window, wanted, self.bite_bytes) < 0 or (
                (<CachedFd>window.source).read(window.data, wanted, offsets[block]) != wanted):
            with gil:
                self.fetch(run, window, block, end)     # retries, and reports errors
        window.held, window.held_end = block, end
        pthread_mutex_lock(&self.lock)
        self.fetched_bytes += wanted
        self.uncounted_bytes += wanted
        if self.uncounted_bytes >= TICK_BYTES:
            pthread_cond_broadcast(&self.changed)
        is_stopped = self.is_stopped
        pthread_mutex_unlock(&self.lock)
        if is_stopped:
            self.raise_stopped()
        return 0

    cdef void publish(self, Window* window) noexcept nogil:
        """Makes the window available to the merge."""
        pthread_mutex_lock(&self.lock)
        window.is_ready = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    cdef int fetch(self, int run, Window* window, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef const uint64_t* offsets = (<SstableIndex>window.index).offsets
        cdef Py_ssize_t wanted = <Py_ssize_t>(offsets[end] - offsets[start])
        cdef Py_ssize_t most = <Py_ssize_t>offsets[(<SstableIndex>window.index).blocks]
        if self.make_room(window, wanted, min(self.window_bytes, most)) < 0:
            raise MemoryError(f"no memory for {wanted} bytes of a run")
        path = sstable_data_path((<RunFiles>self.runs[run]).infos[window.file].name)
        view = PyMemoryView_FromMemory(<char*>window.data, wanted, PyBUF_WRITE)
        try:
            got = self.store.get_into(path, offsets[start], view)
        finally:
            view.release()
        if got != wanted:
            raise Corruption(path, f"blocks {start} to {end - 1}", f"{wanted} bytes", f"{got}")
        window.held, window.held_end = start, end
        if window.source == NULL:
            self.fetched_bytes += wanted
        return 0

    cdef int open_file(self, RunFiles files) except -1:
        """Opens the next file and finds its blocks inside the range."""
        cdef CachedFd source, oldest
        cdef SstableIndex index
        info = files.infos[files.file]
        path = sstable_data_path(info.name)
        index = self.indexes.get(info.name, partial(self.index_of, info))
        source = self.store.open_file(path)
        if source is not None and not source.enter():
            source = None
        if len(files.opened) > SLOTS:           # one for each slot, and the one being filled
            oldest = files.opened.pop(0)[1]
            if oldest is not None:
                oldest.leave()
        files.opened.append((index, source, Block(path)))
        files.start_block = index.find_block(slice_of(self.start), MAX_EPOCH)
        files.end_block = index.blocks
        if self.end is not None and info.largest >= self.end:
            files.end_block = index.find_block(slice_of(self.end), MAX_EPOCH) + 1
        files.block = files.start_block
        return 0

    def index_of(self, info) -> SstableIndex:
        """The index from the file's `.meta`, of a local file in one read."""
        cdef CachedFd source
        cdef ByteBuffer held
        cdef Py_ssize_t wanted = info.meta_bytes + 1
        path = sstable_meta_path(info.name)
        source, encoded = self.store.open_file(path), None
        if source is not None and source.enter():
            held = ByteBuffer(wanted)
            try:
                with nogil:
                    held.size = max(source.read(held.data, wanted, 0), 0)
            finally:
                source.leave()
            encoded = memoryview(held)
        if encoded is None or len(encoded) != info.meta_bytes:
            encoded = self.store.get(path)
        self.fetched_bytes += len(encoded)
        return decode_index(encoded, info, path)
