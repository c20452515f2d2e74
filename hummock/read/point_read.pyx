"""Point reads: many keys at once, compiled from filter to value.

Each key walks down the sources, newest first, past batches and files whose key range or filter says no, to
the first block that may hold it; where keys of late were found in a run, its likely row is looked at before the
filter, as a single get does. All keys that need a file or a block have these fetched together, then all are searched;
the few that a filter misled walk on. So keys that are run together cost one read for each file's missing blocks,
whatever their number.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc

from hummock.base.checksum cimport hash64
from hummock.base.key cimport NOWHERE, SPILL_MASK, Slice, begins_with, compare_bytes, head_of
from hummock.iterator.row_filter cimport VnodeRule, hides
from hummock.read.likely_probes cimport answer_likely
from hummock.read.uncached_get cimport ColdProbes
from hummock.read.view cimport EXPECTED, ReadView, SURE, SortedRun, Source
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.block cimport Block
from hummock.sstable.cache.block_cache cimport want_rows
from hummock.sstable.index cimport even_place
from hummock.sstable.interpolation_search cimport row_at, row_near
from hummock.sstable.plain_rows cimport ELSEWHERE, NOT_HERE, plain_row, plain_value
from hummock.sstable.prefetch cimport Lines, ask, prefetch_line, want
from hummock.sstable.reader cimport OpenedSstable, SstableReader, blocks_of

cdef extern from "Python.h":
    void hold_reference "Py_INCREF"(PyObject*) noexcept
    void drop_reference "Py_DECREF"(PyObject*) noexcept


@cython.freelist(8)
cdef class PointReader:

    def __cinit__(self, ReadView view not None, epoch):
        self.newest = view.checked(epoch) | SPILL_MASK
        self.view, self.pins = view, []

    cdef void begin(self, Probe* probes) noexcept nogil:
        self.probes, self.count = probes, 0

    def __dealloc__(self):
        cdef Py_ssize_t position
        for position in range(self.held_count):
            drop_reference(self.held[position])
        free(self.held)

    cdef int start(self, Slice key) noexcept nogil:
        cdef Probe* probe = &self.probes[self.count]
        self.count += 1
        probe.key, probe.hash = key, hash64(key.data, key.size)
        probe.value.data, probe.value.size, probe.block, probe.place = NULL, 0, NULL, NULL
        probe.source, probe.state, probe.is_admitted = 0, SEEKING, False
        return 0

    cdef int run(self, Probe* probes, Py_ssize_t count) except -1:
        cdef Py_ssize_t position, left = count
        while left > 0:
            self.walk(probes, count)
            self.open_files(probes, count)
            self.pin_blocks(probes, count)
            self.search(probes, count)
            left = 0
            for position in range(count):
                left += probes[position].state != DONE
        self.hide(probes, count)
        return 0

    cdef bint run_in_memory(self, Probe* probes, Py_ssize_t count) except -1:
        """Goes on until each is DONE or waits for a file or a block to be read; whether all are DONE."""
        cdef Py_ssize_t position, walking = count, waiting = 0
        while walking > 0:
            self.walk(probes, count)
            self.pin_cached(probes, count)
            self.search(probes, count)
            walking = waiting = 0
            for position in range(count):
                walking += probes[position].state == SEEKING or probes[position].state == SEEKING_NEXT
                waiting += probes[position].state == NEEDS_META or probes[position].state == NEEDS_BLOCK
        if waiting == 0:
            self.hide(probes, count)
        return waiting == 0

    cdef void hide(self, Probe* probes, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t position
        cdef uint64_t place, last = NOWHERE
        cdef VnodeRule rule
        if self.view.rules.count == 0:
            return
        for position in range(count):
            if probes[position].value.data != NULL:
                place = head_of(probes[position].key.data, probes[position].key.size) >> 16
                if place != last:
                    last, rule = place, self.view.rules.rule_of(place, self.newest)
                if hides(&rule, probes[position].key, probes[position].epoch):
                    probes[position].value.data, probes[position].value.size = NULL, 0

    cdef int walk(self, Probe* probes, Py_ssize_t count) except -1:
        """Every probe goes on to the next block that may hold its key, source by source, or is DONE."""
        cdef Py_ssize_t position
        cdef int number
        for number in range(self.view.count):
            if self.view.sources[number].batch != NULL:
                self.walk_batch(self.view.sources[number].batch, number, probes, count)
            else:
                self.walk_run(self.view.sources[number].run, number, probes, count)
        for position in range(count):
            if probes[position].state == SEEKING:
                probes[position].state = DONE
        return 0

    cdef int walk_batch(self, void* batch, int number, Probe* probes, Py_ssize_t count) except -1:
        cdef Py_ssize_t position, row, searched = 0
        if (<SharedBufferBatch>batch).epoch > self.newest:
            return 0
        if count > 1 and (<SharedBufferBatch>batch).filter is not None:
            for position in range(count):
                (<SharedBufferBatch>batch).filter.prefetch(probes[position].hash)
        for position in range(count):
            if probes[position].state == SEEKING and probes[position].source <= number and (
                    (<SharedBufferBatch>batch).filter is None
                    or (<SharedBufferBatch>batch).filter.may_contain(probes[position].hash)):
                searched += 1
                row = (<SharedBufferBatch>batch).find(probes[position].key)
                if row >= 0:
                    probes[position].value = (<SharedBufferBatch>batch).value_at(row)
                    probes[position].epoch = (<SharedBufferBatch>batch).epoch
                    probes[position].state = DONE
        if searched > 0:
            self.hold_found()
            (<SharedBufferBatch>batch).count_probes(searched)
        return 0

    cdef int walk_run(self, void* run, int number, Probe* probes, Py_ssize_t count) except -1:
        cdef Probe* probe
        cdef PyObject* opened
        cdef Py_ssize_t position, hits = 0, passed = 0
        cdef Lines lines
        if (<SortedRun>run).min_epoch > self.newest:
            return 0
        if count > 1 and (<SortedRun>run).found >= EXPECTED:
            if answer_likely(run, number, probes, count, self.newest) > 0:
                self.is_borrowing = True
        lines.count = 0
        for position in range(count):           # first ask for the lines of the filters, then look at them
            probe = &probes[position]
            if probe.state == SEEKING and probe.source <= number:
                probe.reader = (<SortedRun>run).reader_of(probe.key)
                if count > 1 and probe.reader != NULL:
                    opened = (<SstableReader>probe.reader).meta_place.value
                    if opened != NULL and (<OpenedSstable>opened).bloom is not None:
                        want(&lines, (<OpenedSstable>opened).bloom.line_of(probe.hash))
        ask(&lines)
        for position in range(count):
            probe = &probes[position]
            if (probe.state == SEEKING and probe.source <= number and probe.reader != NULL) or (
                    probe.state == SEEKING_NEXT and probe.source == number):
                opened = (<SstableReader>probe.reader).metas.peek(0)
                probe.source = number
                if opened == NULL:
                    probe.state = NEEDS_META
                    continue
                hits += 1
                if probe.state == SEEKING_NEXT:
                    self.enter_next(probe, <OpenedSstable>opened)
                elif self.may_hold(<OpenedSstable>opened, probe.hash):
                    probe.state, passed = SEEKING_BLOCK, passed + 1
                    probe.block_index = <Py_ssize_t>even_place(&(<OpenedSstable>opened).index.even, probe.key)
                    want(&lines, (<OpenedSstable>opened).index.heads + probe.block_index)
                    want(&lines, (<SstableReader>probe.reader).shelf.places + probe.block_index)
                else:
                    probe.state, probe.source = SEEKING, number + 1
        (<SstableReader>(<SortedRun>run).files[0].reader).door.meta_hits += hits
        if 2 * passed > count > 1:
            (<SortedRun>run).found = SURE
        ask(&lines)
        self.find_blocks(probes, count)
        return 0

    cdef bint may_hold(self, OpenedSstable opened, uint64_t hash) except -1:
        if opened.bloom is not None:
            return opened.bloom.may_contain(hash)
        self.hold_found()
        return opened.may_contain(hash)

    cdef int enter_next(self, Probe* probe, OpenedSstable opened) except -1:
        """Goes into block `block_index` if that begins with the key."""
        if probe.block_index < opened.index.blocks and (
                compare_bytes(opened.index.first_key(probe.block_index), probe.key) == 0):
            probe.state, probe.row_share = NEEDS_BLOCK, 0
        else:
            probe.state, probe.source = SEEKING, probe.source + 1
        return 0

    cdef void find_blocks(self, Probe* probes, Py_ssize_t count) noexcept:
        """Finds the blocks of those whose files may hold their keys; the lines of the indexes were asked for."""
        cdef Probe* probe
        cdef PyObject* opened
        cdef Py_ssize_t position
        for position in range(count):
            probe = &probes[position]
            if probe.state != SEEKING_BLOCK:
                continue
            opened = (<SstableReader>probe.reader).meta_place.value
            if opened == NULL:          # gone while a filter of another policy was asked
                probe.state = NEEDS_META
                continue
            probe.block_index = (<OpenedSstable>opened).index.find_near(probe.key, self.newest, probe.block_index)
            probe.row_share = (<OpenedSstable>opened).index.share_before(probe.block_index, probe.key)
            probe.state = NEEDS_BLOCK
            (<SstableReader>probe.reader).shelf.prefetch(probe.block_index)

    cdef int open_files(self, Probe* probes, Py_ssize_t count) except -1:
        """Opens the files whose filters could not be asked; their probes look at them in the next round."""
        cdef Py_ssize_t position
        for position in range(count):
            if probes[position].state == NEEDS_META:
                self.hold_found()
                self.pins.append((<SstableReader>probes[position].reader).opened())
                probes[position].state = SEEKING
        return 0

    cdef int hold(self, Probe* probe) except -1:
        cdef PyObject** grown
        if self.held_count == self.held_capacity:
            grown = <PyObject**>realloc(self.held, sizeof(PyObject*) * <size_t>(2 * self.held_capacity + 8))
            if grown == NULL:
                raise MemoryError
            self.held, self.held_capacity = grown, 2 * self.held_capacity + 8
        hold_reference(<PyObject*>probe.block)
        self.held[self.held_count] = <PyObject*>probe.block
        self.held_count += 1
        probe.place = NULL
        return 0

    cdef int hold_found(self) except -1:
        """Holds the blocks that are still the cache's alone, before anything gives the GIL away."""
        cdef Py_ssize_t position
        if self.is_borrowing:
            for position in range(self.count):
                if self.probes[position].place != NULL:
                    self.hold(&self.probes[position])
            self.is_borrowing = False
        return 0

    cdef Py_ssize_t pin_cached(self, Probe* probes, Py_ssize_t count) noexcept:
        """Gives the blocks that are cached to the probes that need them; how many need others."""
        cdef Probe* probe
        cdef void* reader = NULL
        cdef PyObject* found
        cdef Py_ssize_t position, hits = 0, misses = 0
        cdef Lines lines
        lines.count = 0
        for position in range(count):           # first ask for blocks and rows, then look
            if probes[position].state == NEEDS_BLOCK:
                want_rows(
                    &lines, &(<SstableReader>probes[position].reader).shelf.places[probes[position].block_index],
                    probes[position].row_share)
        ask(&lines)
        for position in range(count):
            probe = &probes[position]
            if probe.state != NEEDS_BLOCK:
                continue
            found = (<SstableReader>probe.reader).shelf.peek(probe.block_index)
            if found != NULL:
                probe.block, probe.state = <void*>found, IN_BLOCK
                probe.place = &(<SstableReader>probe.reader).shelf.places[probe.block_index]
                reader, hits = probe.reader, hits + 1
            else:
                misses += 1
        if hits > 0:
            self.is_borrowing = True
            (<SstableReader>reader).door.hits += hits
        return misses

    cdef int pin_blocks(self, Probe* probes, Py_ssize_t count) except -1:
        cdef Py_ssize_t position
        cdef dict missing = {}
        if self.pin_cached(probes, count) == 0:
            return 0
        if self.cold is None:
            self.cold = ColdProbes()
        for position in range(count):
            if probes[position].state == NEEDS_BLOCK:
                (<SstableReader>probes[position].reader).door.misses += 1
                self.cold.take(&probes[position])
        self.hold_found()
        self.cold.run(self.newest)
        for position in range(count):
            if probes[position].state == NEEDS_BLOCK:
                missing.setdefault(<SstableReader>probes[position].reader, set()).add(probes[position].block_index)
        return self.load_missing(probes, count, missing) if missing else 0

    cdef int load_missing(self, Probe* probes, Py_ssize_t count, dict missing) except -1:
        """Has the blocks read, file by file, and gives them to the probes that wait for them."""
        cdef Probe* probe
        cdef Py_ssize_t position
        cdef dict loaded = blocks_of(missing, self.pins)
        for position in range(count):
            probe = &probes[position]
            if probe.state == NEEDS_BLOCK:
                block = loaded[<SstableReader>probe.reader][probe.block_index]
                probe.block, probe.state = <void*>block, IN_BLOCK
        return 0

    cdef void search(self, Probe* probes, Py_ssize_t count) noexcept nogil:
        cdef Lane lanes[LANES]
        cdef Py_ssize_t position = 0, width
        while position < count:
            width = 0
            while position < count and width < LANES:
                if probes[position].state == IN_BLOCK and probes[position].place != NULL:
                    self.search_plain(&probes[position])
                if probes[position].state == IN_BLOCK:
                    lanes[width].probe = &probes[position]
                    width += 1
                position += 1
            self.search_lanes(lanes, width)

    cdef void search_plain(self, Probe* probe) noexcept nogil:
        """Reads the answer if the block's place says enough; its lines were asked for when it was found."""
        cdef Py_ssize_t row = plain_row(probe.place, row_at(probe.row_share, probe.place.rows), probe.key, self.newest)
        if row == ELSEWHERE:
            return
        if row == NOT_HERE:
            probe.source, probe.state, probe.place = probe.source + 1, SEEKING, NULL
        elif row == probe.place.rows:
            probe.block_index, probe.state, probe.place = probe.block_index + 1, SEEKING_NEXT, NULL
        else:
            probe.value, probe.epoch, probe.state = plain_value(probe.place, row), probe.place.epoch, DONE

    cdef void search_lanes(self, Lane* lanes, Py_ssize_t width) noexcept nogil:
        """Searches that wait for memory together: each stage asks for what the next one reads, of all lanes."""
        cdef Lane* lane
        cdef Py_ssize_t i
        for i in range(width):
            prefetch_line(lanes[i].probe.block)
            prefetch_line(<const uint8_t*>lanes[i].probe.block + 64)
            prefetch_line(<const uint8_t*>lanes[i].probe.block + 128)
        for i in range(width):
            (<Block>lanes[i].probe.block).prefetch_row(
                row_at(lanes[i].probe.row_share, (<Block>lanes[i].probe.block).rows))
        for i in range(width):
            lane = &lanes[i]
            lane.rows = (<Block>lane.probe.block).rows
            lane.heads = (<Block>lane.probe.block).ready_heads()
            if not begins_with(lane.probe.key, (<Block>lane.probe.block).prefix):
                lane.heads = NULL
                continue
            lane.head = head_of(lane.probe.key.data + (<Block>lane.probe.block).prefix.size,
                                lane.probe.key.size - (<Block>lane.probe.block).prefix.size)
            lane.row = row_near(lane.heads, lane.rows, lane.head, row_at(lane.probe.row_share, lane.rows))
            (<Block>lane.probe.block).prefetch_row(lane.row)
        for i in range(width):
            self.settle(&lanes[i])

    cdef void settle(self, Lane* lane) noexcept nogil:
        """Reads the answer where the heads led to it; where they say too little the block searches itself."""
        cdef Probe* probe = lane.probe
        cdef Py_ssize_t row = lane.row
        cdef bint is_found = lane.heads != NULL and row < lane.rows and lane.heads[row] == lane.head and (
            (<Block>probe.block).is_version_of(row, probe.key, self.newest, 8))
        if not is_found and (lane.heads == NULL or row == lane.rows or lane.heads[row] == lane.head):
            row = (<Block>probe.block).lower_bound(probe.key, self.newest)
            if row == lane.rows:
                probe.block_index += 1
                probe.state, probe.place = SEEKING_NEXT, NULL
                return
            is_found = begins_with(probe.key, (<Block>probe.block).prefix)
            is_found = is_found and (<Block>probe.block).is_version_of(row, probe.key, self.newest, 0)
        if is_found:
            probe.value = (<Block>probe.block).value_at(row)
            probe.epoch = (<Block>probe.block).epoch_at(row)
            probe.state = DONE
        else:
            probe.source += 1
            probe.state, probe.place = SEEKING, NULL
