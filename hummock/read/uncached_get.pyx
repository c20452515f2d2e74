"""UncachedGets: lookups whose blocks are read but not cached.

Probes are sorted by file and block, so that a block that several keys need is read once and a file is read in order.
All blocks of a file are read, searched and copied from without the GIL. Unreadable or corrupt blocks fall back to the
slow path, which retries and reports.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy

from hummock.errors import Corruption

from hummock.base.key cimport Slice
from hummock.object_store.fd_cache cimport CachedFd
from hummock.read.probe cimport ADMITTED, DONE, NEEDS_BLOCK, REFUSED, UNASKED, Admission, Probe, leave_block
from hummock.sstable.block_search cimport row_by_keys
from hummock.sstable.index cimport SstableIndex
from hummock.sstable.partial_block cimport NOT_READ, PartialBlock
from hummock.sstable.reader cimport OpenedSstable, SstableReader

cdef Py_ssize_t PAGE_BYTES = 60_000
cdef Py_ssize_t KEPT_SCRATCH = 4
cdef list idle = []                     # unused PartialBlocks


cdef class UncachedGets:

    def __dealloc__(self):
        cdef Page* older
        free(self.probes)
        while self.page != NULL:
            older = self.page.older
            free(self.page)
            self.page = older

    cdef int add(self, Probe* probe) except -1:
        cdef Probe** grown
        if self.count == self.capacity:
            grown = <Probe**>realloc(self.probes, sizeof(Probe*) * <size_t>(2 * self.capacity + 8))
            if grown == NULL:
                raise MemoryError
            self.probes, self.capacity = grown, 2 * self.capacity + 8
        self.probes[self.count] = probe
        self.count += 1
        return 0

    cdef int run(self, uint64_t newest) except -1:
        cdef PartialBlock scratch = idle.pop() if idle else PartialBlock()
        cdef Py_ssize_t first = 0, end, count = self.count
        cdef Probe** probes = self.probes
        self.count = 0
        qsort(self.probes, <size_t>count, sizeof(Probe*), &by_block)
        while first < count:
            end = first + 1
            while end < count and probes[end].reader == probes[first].reader:
                end += 1
            if (<SstableReader>probes[first].reader).has_file():
                self.run_file(first, self.part(first, end), newest, scratch)
            first = end
        if len(idle) < KEPT_SCRATCH:
            idle.append(scratch)
        return 0

    cdef Py_ssize_t part(self, Py_ssize_t first, Py_ssize_t end) except -1:
        """Removes the probes whose block is to be cached; returns the end of the others, moved to the front."""
        cdef Probe** probes = self.probes
        cdef SstableReader reader = <SstableReader>probes[first].reader
        cdef OpenedSstable opened = reader.opened()
        cdef Py_ssize_t position, kept = first, block = -1
        cdef Admission admission = UNASKED
        for position in range(first, end):
            if probes[position].block_index != block:
                block = probes[position].block_index
                admission = probes[position].admission
                if admission == UNASKED:
                    admission = ADMITTED if reader.admits(opened, block) else REFUSED
            if admission == REFUSED:
                probes[kept] = probes[position]
                kept += 1
        return kept

    cdef int run_file(self, Py_ssize_t first, Py_ssize_t end, uint64_t newest, PartialBlock scratch) except -1:
        cdef Probe** probes = self.probes
        cdef SstableReader reader = <SstableReader>probes[first].reader
        cdef OpenedSstable opened = reader.opened()
        cdef CachedFd file = reader.file
        cdef Py_ssize_t stop
        if not file.enter():
            return 0
        scratch.block.object_name = reader.data_path
        try:
            with nogil:
                while first < end:
                    stop = first + 1
                    while stop < end and probes[stop].block_index == probes[first].block_index:
                        stop += 1
                    if scratch.read(
                            file, opened.index, probes[first].block_index, True, stop == first + 1) != NOT_READ:
                        self.answer(scratch, first, stop, newest)
                    first = stop
        except Corruption:
            return 0                            # the slow path reads the block again, and reports
        finally:
            file.leave()
        return 0

    cdef int answer(self, PartialBlock scratch, Py_ssize_t first, Py_ssize_t end, uint64_t newest) except -1 nogil:
        """Searches the block for each key, decodes it up to the last value, then copies the values."""
        cdef Probe** probes = self.probes
        cdef Probe* probe
        cdef Py_ssize_t position, row
        cdef Slice last
        last.data, last.size = NULL, 0
        for position in range(first, end):
            probe = probes[position]
            row = row_by_keys(<void*>scratch.block, probe.key, newest)
            if row < 0:
                leave_block(probe, row)
            else:
                probe.state, probe.epoch = DONE, scratch.block.epoch_at(row)
                probe.value = scratch.block.value_at(row)
                if probe.value.data != NULL and probe.value.data >= last.data:
                    last = probe.value
        if not scratch.show(last):
            for position in range(first, end):
                probe = probes[position]
                if probe.state == DONE and probe.value.data != NULL:
                    probe.state, probe.value.data, probe.value.size = NEEDS_BLOCK, NULL, 0
            return 0
        for position in range(first, end):
            if probes[position].state == DONE and probes[position].value.data != NULL:
                self.keep(&probes[position].value)
        return 0

    cdef int keep(self, Slice* value) except -1 nogil:
        """Copies the value into memory owned by this object."""
        cdef Page* page = self.page
        cdef Py_ssize_t size
        if page == NULL or page.size - page.used < value.size:
            size = value.size if value.size > PAGE_BYTES else PAGE_BYTES
            page = <Page*>malloc(sizeof(Page) + <size_t>size)
            if page == NULL:
                with gil:
                    raise MemoryError
            page.older, page.used, page.size = self.page, 0, size
            self.page = page
        memcpy(<uint8_t*>page + sizeof(Page) + page.used, value.data, <size_t>value.size)
        value.data = <uint8_t*>page + sizeof(Page) + page.used
        page.used += value.size
        return 0


cdef int by_block(const void* left, const void* right) noexcept nogil:
    cdef const Probe* one = (<const Probe**>left)[0]
    cdef const Probe* other = (<const Probe**>right)[0]
    if one.reader != other.reader:
        return -1 if one.reader < other.reader else 1
    return (one.block_index > other.block_index) - (one.block_index < other.block_index)
