"""RunIterator: the entries of one run inside a range, from prefetched windows, without the GIL.

The expected row digest comes from the files' builders, which recorded it per block: so it covers everything that
happened to the rows since. Only blocks that the range cuts through are hashed again.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free

from hummock.base.key cimport MAX_EPOCH, Slice, slice_of
from hummock.compaction.read_ahead cimport ReadAhead, Window
from hummock.iterator.base cimport FORWARD, HummockIterator, Span
from hummock.sstable.block cimport Block, block_hash
from hummock.sstable.index cimport SstableIndex


def run_iterators(ReadAhead source not None) -> list:
    """A RunIterator for each run. Each is used by one thread, which may be the same for all."""
    return [RunIterator(source, run) for run in range(source.run_count)]


@cython.final
cdef class RunIterator(HummockIterator):
    """The entries of one run inside the range, in one forward pass.

    Invariant: while `valid`, `row` is a row of `block` below `end_row`.
    """
    cdef ReadAhead source
    cdef int run
    cdef Window* window                 # NULL before the first and after the last
    cdef Py_ssize_t index               # of the current block
    cdef void* block                    # Block, the window's, which names its file in errors; its decode buffer moves
    # on from file to file with the blocks. NULL before the first
    cdef Py_ssize_t row
    cdef Py_ssize_t end_row             # rows of the block that are inside the range
    cdef uint8_t* key                   # the current user key, assembled; owned
    cdef Py_ssize_t key_capacity
    cdef Slice start
    cdef Slice stop
    cdef readonly int64_t rows_read     # entries inside the range in the blocks entered so far
    cdef readonly uint64_t hash_read    # their row digest

    def __cinit__(self, ReadAhead source not None, int run):
        self.source, self.run, self.direction = source, run, FORWARD
        self.start = slice_of(source.start)
        if source.end is not None:
            self.stop = slice_of(source.end)

    def __dealloc__(self):
        free(self.key)

    cdef int rewind(self) except -1 nogil:
        """REQUIRES that this is the first move."""
        if self.block != NULL:
            with gil:
                raise ValueError("a run is walked once")
        return self.enter()

    cdef int next(self) except -1 nogil:
        self.row += 1
        if self.row >= self.end_row:
            return self.enter()
        return self.show()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        if not (<Block>self.block).span_from(self.row, out, as_rows):
            return False
        out.end = self.end_row
        return True

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.row += rows
        if self.row >= self.end_row:
            return self.enter()
        return self.show()

    cdef int enter(self) except -1 nogil:
        self.valid, self.row, self.end_row = False, 0, 0
        while self.row >= self.end_row:
            self.index += 1
            if self.window == NULL or self.index >= self.window.end:
                self.source.pop(self.run, &self.window)
                if self.window == NULL:
                    return 0
                self.index = self.window.block
                if self.window.decoder != self.block:
                    if self.block != NULL:
                        (<Block>self.window.decoder).adopt_memory(<Block>self.block)
                    self.block = self.window.decoder
            if self.index >= self.window.held_end:
                self.source.hold(self.run, self.window, self.index)
            self.load()
        self.rows_read += self.end_row - self.row
        self.source.rows += self.end_row - self.row
        self.hash_read += self.hash_here()
        self.valid = True
        return self.show()

    cdef int load(self) except -1 nogil:
        """Decodes block `index` and finds its rows inside the range."""
        cdef void* index = self.window.index
        cdef const uint64_t* offsets = (<SstableIndex>index).offsets
        cdef Py_ssize_t at = self.index
        (<Block>self.block).load(
            self.window.data + (offsets[at] - offsets[self.window.held]),
            <Py_ssize_t>(offsets[at + 1] - offsets[at]), (<SstableIndex>index).codecs[at],
            (<SstableIndex>index).raw_sizes[at], (<SstableIndex>index).checksums[at], at)
        if (<Block>self.block).rows != (<SstableIndex>index).rows[at]:
            (<Block>self.block).corrupt(at, "rows", (<SstableIndex>index).rows[at], (<Block>self.block).rows)
        if (<SstableIndex>index).global_epoch > 0:
            (<Block>self.block).override_epochs((<SstableIndex>index).global_epoch, at)
        (<Block>self.block).begin_key(&self.key, &self.key_capacity)
        return self.clip()

    cdef int clip(self) except -1 nogil:
        self.row, self.end_row = 0, (<Block>self.block).rows
        if self.window.is_first and self.index == self.window.block and self.start.size > 0:
            self.row = (<Block>self.block).lower_bound(self.start, MAX_EPOCH)
        if self.window.is_last and self.index == self.window.end - 1 and self.stop.data != NULL:
            self.end_row = (<Block>self.block).lower_bound(self.stop, MAX_EPOCH)
        return 0

    cdef uint64_t hash_here(self) noexcept nogil:
        cdef void* index = self.window.index
        if self.row == 0 and self.end_row == (<Block>self.block).rows and (<SstableIndex>index).hashes != NULL:
            return (<SstableIndex>index).hashes[self.index]
        return block_hash(<Block>self.block, self.row, self.end_row, self.key)

    cdef int show(self) noexcept nogil:
        self.user_key = (<Block>self.block).key_at(self.row, self.key)
        self.epoch = (<Block>self.block).epoch_at(self.row)
        self.value = (<Block>self.block).value_at(self.row)
        return 0
