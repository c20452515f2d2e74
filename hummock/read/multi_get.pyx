"""MultiGet: the values of many keys at one epoch, Arrow to Arrow, compiled from filter to value.

Each key passes through the sources, newest first, skipping batches and files whose key range or filter excludes it, to
the first block that may hold it; its states are in `probe.pxd`. Files and blocks that any key needs are fetched
together, then all keys are searched; the few keys after a false positive continue. So keys that run together cost one
read for each file's missing blocks, whatever their number. Keys run in small groups as far as memory allows, and their
values are copied while they are in the CPU caches; up to a thousand keys that need I/O share one round of reads.

In runs of fixed-width blocks where recent lookups succeeded, predicted rows are examined before filter and index. What
a single get does for one key (`get.pyx`) is done here for many keys interleaved, in three rounds that each prefetch
what the next one reads: the file's slots for the predicted block, then slot and row, then the answer. Searches inside
blocks are interleaved in the same way, as lanes (AMAC: Kocberber et al., VLDB 2015).
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, uint8_t
from libc.stdlib cimport free, malloc, realloc

from hummock.base.checksum cimport hash64
from hummock.base.key cimport NOWHERE, SPILL_MASK, Slice, compare_bytes, head_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.iterator.row_filter cimport VnodeRule, hides
from hummock.read.probe cimport (
    DONE, IN_BLOCK, NEEDS_BLOCK, NEEDS_META, SEEKING, SEEKING_BLOCK, SEEKING_NEXT, UNASKED, Probe, leave_block,
)
from hummock.read.sorted_run cimport LIKELY_HIT, MAX_BIAS, SortedRun
from hummock.read.uncached_get cimport UncachedGets
from hummock.read.view cimport ReadView, Source
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.block cimport Block
from hummock.sstable.block_search cimport (
    NOT_HERE, UNDECIDED, begin_by_hash, begin_by_heads, finish_by_hash, finish_by_heads, fixed_width_value,
    inner_row_by_slot, row_by_slot,
)
from hummock.sstable.cache.block_cache cimport CacheSlot, PredictedRow, enqueue_block, enqueue_rows, used
from hummock.sstable.index cimport even_position
from hummock.sstable.interpolation_search cimport row_at
from hummock.sstable.prefetch cimport PrefetchList, enqueue, issue
from hummock.sstable.reader cimport OpenedSstable, SstableReader, blocks_of

cdef extern from "Python.h":
    void hold_reference "Py_INCREF"(PyObject*) noexcept
    void drop_reference "Py_DECREF"(PyObject*) noexcept

cdef Py_ssize_t SLICE_KEYS = 1024   # keys that share one round of reads; a search takes 0.2 ms
cdef Py_ssize_t GROUP_KEYS = 128    # keys that run together: the TLB covers the pages of so many rows


def read_many(ReadView view not None, BinaryColumn keys not None, epoch):
    """The value of each key at `epoch` (None: the committed one), null where there is none, as a BinaryColumn.

    A null key has no value. Raises what `read_one` raises, and OverflowError when the values pass 2 GiB.
    """
    cdef BinaryColumnBuilder values = BinaryColumnBuilder()
    cdef Py_ssize_t first = 0, count, done
    cdef Probe* probes = <Probe*>malloc(sizeof(Probe) * <size_t>min(keys.rows + 1, SLICE_KEYS))
    cdef PointReader reader
    if probes == NULL:
        raise MemoryError
    try:
        view.read_epoch(epoch)
        while first < keys.rows:
            count = min(SLICE_KEYS, keys.rows - first)
            reader = PointReader(view, epoch)
            reader.begin(probes)
            done = read_near(reader, keys, first, count, values)
            if done < count:
                reader.run(probes + done, count - done)
                append_values(values, probes + done, count - done)
            first += count
            if first < keys.rows:
                offer_gil()
    finally:
        free(probes)
    return values.finish()


cdef void offer_gil() noexcept:
    """Lets a thread run that has waited for the GIL."""
    with nogil:
        pass


cdef Py_ssize_t read_near(
    PointReader reader, BinaryColumn keys, Py_ssize_t first, Py_ssize_t count, BinaryColumnBuilder values
) except -1:
    """Reads `count` keys as far as memory allows; appends the values of the leading keys that are DONE, and returns how
    many.
    """
    cdef Py_ssize_t row, begin, done = 0
    while reader.count < count:
        begin = reader.count
        for row in range(begin, min(begin + GROUP_KEYS, count)):
            reader.start(keys.at(first + row))
            if keys.is_null(first + row):
                reader.probes[row].state = DONE
        if reader.run_in_memory(reader.probes + begin, reader.count - begin) and done == begin:
            append_values(values, reader.probes + begin, reader.count - begin)
            done = reader.count
    return done


cdef int append_values(BinaryColumnBuilder values, Probe* probes, Py_ssize_t count) except -1 nogil:
    cdef Py_ssize_t row, added = 0
    for row in range(count):
        added += probes[row].value.size
    if values.data_bytes + added > INT32_MAX:
        with gil:
            raise OverflowError(f"the values of one call pass 2 GiB: {values.data_bytes + added} bytes")
    values.reserve(count, added)
    for row in range(count):
        if probes[row].value.data == NULL:
            values.append_null()
        else:
            values.append(probes[row].value)
    return 0


@cython.freelist(8)
cdef class PointReader:

    def __cinit__(self, ReadView view not None, epoch):
        self.newest = view.read_epoch(epoch) | SPILL_MASK
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
        probe.value.data, probe.value.size, probe.block, probe.slot = NULL, 0, NULL, NULL
        probe.source, probe.state, probe.admission, probe.row_share = 0, SEEKING, UNASKED, 0.5
        return 0

    cdef int run(self, Probe* probes, Py_ssize_t count) except -1:
        cdef Py_ssize_t position, left = count
        while left > 0:
            self.advance(probes, count)
            self.open_files(probes, count)
            self.pin_blocks(probes, count)
            self.search(probes, count)
            left = 0
            for position in range(count):
                left += probes[position].state != DONE
        self.hide(probes, count)
        return 0

    cdef bint run_in_memory(self, Probe* probes, Py_ssize_t count) except -1:
        """Advances each probe until it is DONE or waits for a file or block; whether all are DONE."""
        cdef Py_ssize_t position, walking = count, waiting = 0
        while walking > 0:
            self.advance(probes, count)
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
        cdef uint64_t table_vnode, last = NOWHERE
        cdef VnodeRule rule
        if self.view.rules.count == 0:
            return
        for position in range(count):
            if probes[position].value.data != NULL:
                table_vnode = head_of(probes[position].key.data, probes[position].key.size) >> 16
                if table_vnode != last:
                    last, rule = table_vnode, self.view.rules.rule_of(table_vnode, self.newest)
                if hides(&rule, probes[position].key, probes[position].epoch):
                    probes[position].value.data, probes[position].value.size = NULL, 0

    cdef int advance(self, Probe* probes, Py_ssize_t count) except -1:
        """Advances every probe, source by source, to the next block that may hold its key, or to DONE."""
        cdef Py_ssize_t position
        cdef int number
        for number in range(self.view.count):
            if self.view.sources[number].batch != NULL:
                self.advance_in_batch(self.view.sources[number].batch, number, probes, count)
            else:
                self.advance_in_run(self.view.sources[number].run, number, probes, count)
        for position in range(count):
            if probes[position].state == SEEKING:
                probes[position].state = DONE
        return 0

    cdef int advance_in_batch(self, void* batch, int number, Probe* probes, Py_ssize_t count) except -1:
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

    cdef int advance_in_run(self, void* run, int number, Probe* probes, Py_ssize_t count) except -1:
        cdef Probe* probe
        cdef PyObject* opened
        cdef Py_ssize_t position, hits = 0, passed = 0
        cdef PrefetchList lines
        if (<SortedRun>run).min_epoch > self.newest:
            return 0
        if count > 1 and (<SortedRun>run).hit_bias >= LIKELY_HIT:
            if answer_predicted(run, number, probes, count, self.newest) > 0:
                self.is_borrowing = True
        lines.count = 0
        for position in range(count):           # prefetch the lines of all filters, then check them
            probe = &probes[position]
            if probe.state == SEEKING and probe.source <= number:
                probe.reader = (<SortedRun>run).reader_of(probe.key)
                if count > 1 and probe.reader != NULL:
                    opened = (<SstableReader>probe.reader).meta_slot.value
                    if opened != NULL and (<OpenedSstable>opened).bloom is not None:
                        enqueue(&lines, (<OpenedSstable>opened).bloom.line_of(probe.hash))
        issue(&lines)
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
                    probe.block_index = <Py_ssize_t>even_position(&(<OpenedSstable>opened).index.even, probe.key)
                    enqueue(&lines, (<OpenedSstable>opened).index.heads + probe.block_index)
                    enqueue(&lines, (<SstableReader>probe.reader).slots.entries + probe.block_index)
                else:
                    probe.state, probe.source = SEEKING, number + 1
        (<SstableReader>(<SortedRun>run).files[0].reader).admission.meta_hits += hits
        if 2 * passed > count > 1:
            (<SortedRun>run).hit_bias = MAX_BIAS
        issue(&lines)
        self.find_blocks(probes, count)
        return 0

    cdef bint may_hold(self, OpenedSstable opened, uint64_t hash) except -1:
        if opened.bloom is not None:
            return opened.bloom.may_contain(hash)
        self.hold_found()
        return opened.may_contain(hash)

    cdef int enter_next(self, Probe* probe, OpenedSstable opened) except -1:
        """Enters block `block_index` if its first key is the probe's key."""
        if probe.block_index < opened.index.blocks and (
                compare_bytes(opened.index.first_key(probe.block_index), probe.key) == 0):
            probe.state, probe.row_share = NEEDS_BLOCK, 0
        else:
            probe.state, probe.source = SEEKING, probe.source + 1
        return 0

    cdef void find_blocks(self, Probe* probes, Py_ssize_t count) noexcept:
        """Finds the blocks of the probes whose files may hold their keys; the index lines have been prefetched."""
        cdef Probe* probe
        cdef PyObject* opened
        cdef Py_ssize_t position
        for position in range(count):
            probe = &probes[position]
            if probe.state != SEEKING_BLOCK:
                continue
            opened = (<SstableReader>probe.reader).meta_slot.value
            if opened == NULL:          # evicted while a filter with another policy was checked
                probe.state = NEEDS_META
                continue
            probe.block_index = (<OpenedSstable>opened).index.find_near(probe.key, self.newest, probe.block_index)
            if not (<SstableReader>probe.reader).slots.entries[probe.block_index].is_hashed:
                probe.row_share = (<OpenedSstable>opened).index.share_before(probe.block_index, probe.key)
            probe.state = NEEDS_BLOCK

    cdef int open_files(self, Probe* probes, Py_ssize_t count) except -1:
        """Opens the files whose filters were not in memory; their probes check them in the next round."""
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
        probe.slot = NULL
        return 0

    cdef int hold_found(self) except -1:
        """References the blocks that are only borrowed from the cache, before the GIL is released."""
        cdef Py_ssize_t position
        if self.is_borrowing:
            for position in range(self.count):
                if self.probes[position].slot != NULL:
                    self.hold(&self.probes[position])
            self.is_borrowing = False
        return 0

    cdef Py_ssize_t pin_cached(self, Probe* probes, Py_ssize_t count) noexcept:
        """Sets cached blocks in the probes that need them; how many probes still miss theirs."""
        cdef Probe* probe
        cdef void* reader = NULL
        cdef PyObject* found
        cdef Py_ssize_t position, hits = 0, misses = 0
        cdef PrefetchList lines
        lines.count = 0
        for position in range(count):           # prefetch all blocks and rows, then look
            if probes[position].state == NEEDS_BLOCK:
                enqueue_rows(
                    &lines, &(<SstableReader>probes[position].reader).slots.entries[probes[position].block_index],
                    probes[position].row_share, probes[position].hash)
        issue(&lines)
        for position in range(count):
            probe = &probes[position]
            if probe.state != NEEDS_BLOCK:
                continue
            found = (<SstableReader>probe.reader).slots.peek(probe.block_index)
            if found != NULL:
                probe.block, probe.state = <void*>found, IN_BLOCK
                probe.slot = &(<SstableReader>probe.reader).slots.entries[probe.block_index]
                reader, hits = probe.reader, hits + 1
            else:
                misses += 1
        if hits > 0:
            self.is_borrowing = True
            (<SstableReader>reader).admission.hits += hits
        return misses

    cdef int pin_blocks(self, Probe* probes, Py_ssize_t count) except -1:
        cdef Py_ssize_t position
        cdef dict missing = {}
        if self.pin_cached(probes, count) == 0:
            return 0
        if self.uncached is None:
            self.uncached = UncachedGets()
        for position in range(count):
            if probes[position].state == NEEDS_BLOCK:
                (<SstableReader>probes[position].reader).admission.misses += 1
                self.uncached.add(&probes[position])
        self.hold_found()
        self.uncached.run(self.newest)
        for position in range(count):
            if probes[position].state == NEEDS_BLOCK:
                missing.setdefault(<SstableReader>probes[position].reader, set()).add(probes[position].block_index)
        return self.load_missing(probes, count, missing) if missing else 0

    cdef int load_missing(self, Probe* probes, Py_ssize_t count, dict missing) except -1:
        """Reads the blocks, file by file, and sets them in the probes that wait for them."""
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
                if probes[position].state == IN_BLOCK and probes[position].slot != NULL:
                    self.search_slot(&probes[position])
                if probes[position].state == IN_BLOCK:
                    lanes[width].probe = &probes[position]
                    width += 1
                position += 1
            self.search_lanes(lanes, width)

    cdef void search_slot(self, Probe* probe) noexcept nogil:
        """Reads the answer if the block's slot suffices; its lines were prefetched when it was found."""
        cdef Py_ssize_t row = row_by_slot(probe.slot, probe.row_share, probe.key, self.newest)
        if row >= 0:
            probe.value, probe.epoch, probe.state = fixed_width_value(probe.slot, row), probe.slot.epoch, DONE
        elif row != UNDECIDED:
            leave_block(probe, row)

    cdef void search_lanes(self, Lane* lanes, Py_ssize_t width) noexcept nogil:
        """Interleaved searches: each stage prefetches what the next one reads, for all lanes."""
        cdef Py_ssize_t i, left = 0
        cdef PrefetchList lines
        lines.count = 0
        for i in range(width):
            enqueue_block(&lines, lanes[i].probe.block)
        issue(&lines)
        for i in range(width):
            lanes[i].row = begin_by_hash(lanes[i].probe.block, lanes[i].probe.hash)
        for i in range(width):
            lanes[i].row = finish_by_hash(lanes[i].probe.block, lanes[i].row, lanes[i].probe.key, self.newest)
            if lanes[i].row >= 0:
                self.settle(lanes[i].probe, lanes[i].row)
            else:
                lanes[left] = lanes[i]
                left += 1
        for i in range(left):
            (<Block>lanes[i].probe.block).prefetch_row(
                row_at(lanes[i].probe.row_share, (<Block>lanes[i].probe.block).rows))
        for i in range(left):
            begin_by_heads(lanes[i].probe.block, lanes[i].probe.row_share, lanes[i].probe.key, &lanes[i].search)
        for i in range(left):
            self.settle(lanes[i].probe, finish_by_heads(
                lanes[i].probe.block, &lanes[i].search, lanes[i].probe.key, self.newest))

    cdef void settle(self, Probe* probe, Py_ssize_t row) noexcept nogil:
        if row < 0:
            leave_block(probe, row)
            return
        probe.value, probe.epoch = (<Block>probe.block).value_at(row), (<Block>probe.block).epoch_at(row)
        probe.state = DONE


cdef Py_ssize_t answer_predicted(void* run, int number, Probe* probes, Py_ssize_t count, uint64_t newest) noexcept:
    cdef Probe* probe
    cdef Py_ssize_t position, row, here = 0, answered = 0
    prefetch_predicted(run, number, probes, count)
    for position in range(count):
        probe = &probes[position]
        if probe.is_predicted:
            row = predicted_answer(probe, &(<SstableReader>probe.reader).slots.entries[probe.block_index], newest)
            answered += row != UNDECIDED
            here += row >= 0
            if row == NOT_HERE:
                probe.source = number + 1
    if answered > 0:
        (<SstableReader>(<SortedRun>run).files[0].reader).admission.hits += answered
        (<SortedRun>run).hit_bias = MAX_BIAS if 2 * here >= answered else 0
    return answered


cdef inline void prefetch_predicted(void* run, int number, Probe* probes, Py_ssize_t count) noexcept:
    """Marks the probes that are predicted to find a row in the run, and prefetches its lines."""
    cdef Probe* probe
    cdef PredictedRow predicted
    cdef PrefetchList lines
    cdef Py_ssize_t position
    lines.count = 0
    for position in range(count):
        probe = &probes[position]
        probe.is_predicted = False
        if probe.state == SEEKING and probe.source <= number:
            probe.reader = (<SortedRun>run).reader_of(probe.key)
            if probe.reader != NULL and (<SstableReader>probe.reader).slots is not None:
                probe.is_predicted = (<SstableReader>probe.reader).slots.is_predictable
                if probe.is_predicted:
                    enqueue(&lines, (<SstableReader>probe.reader).slots.hint_of(probe.key))
    issue(&lines)
    for position in range(count):
        probe = &probes[position]
        if probe.is_predicted:
            predicted = (<SstableReader>probe.reader).slots.predicted_row(probe.key)
            (<SstableReader>probe.reader).slots.enqueue_predicted(&lines, predicted)
            probe.block_index, probe.row_share = predicted.block, predicted.share
    issue(&lines)


cdef inline Py_ssize_t predicted_answer(Probe* probe, CacheSlot* slot, uint64_t newest) noexcept:
    """The row of the answer in the slot's block, NOT_HERE, or UNDECIDED."""
    cdef Py_ssize_t row
    if used(slot) == NULL:
        return UNDECIDED
    row = inner_row_by_slot(slot, probe.row_share, probe.key, newest)
    if row != UNDECIDED:
        used((<SstableReader>probe.reader).meta_slot)
    if row >= 0:
        probe.value, probe.epoch, probe.state = fixed_width_value(slot, row), slot.epoch, DONE
        probe.block, probe.slot = <void*>slot.value, slot
    return row
