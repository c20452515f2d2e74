"""Get: a read of one key, as far as it needs only memory.

On a store larger than the CPU caches, a get costs its memory stalls, one cache line after another. So every line is
prefetched as soon as its address is known, for several runs at once: the line of a run's filter; or, where recent
lookups in the run succeeded, the block that should hold the key, by the index; or, if its blocks are fixed width too,
key prefix and value of the predicted row, whose address follows from the key alone. Most predicted rows prove either
that they are the answer or that the file has none; the other lookups use filter and index. What needs I/O (a file or
block to be read, a key that may be in the next block) continues in a PointReader. Borrowed pointers are valid until the
end of the call, which holds the GIL throughout.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.checksum cimport hash64
from hummock.base.key cimport SPILL_MASK, Slice, head_of
from hummock.iterator.row_filter cimport VnodeRule, hides
from hummock.read.multi_get cimport PointReader
from hummock.read.probe cimport ADMITTED, REFUSED, UNASKED, Admission, Probe
from hummock.read.sorted_run cimport LIKELY_HIT, MAX_BIAS, SortedRun
from hummock.read.view cimport ReadView
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.block cimport Block
from hummock.sstable.block_search cimport (
    NEEDS_IO, NEXT_BLOCK, NOT_HERE, UNDECIDED, begin_by_hash, finish_by_hash, fixed_width_value, inner_row_by_slot,
    row_by_heads, row_by_keys, row_by_slot,
)
from hummock.sstable.cache.block_cache cimport CacheSlot, PredictedRow, used, enqueue_rows
from hummock.sstable.filter.bloom cimport filter_line
from hummock.sstable.index cimport SstableIndex
from hummock.sstable.partial_block cimport NOT_READ, PartialBlock
from hummock.sstable.prefetch cimport PrefetchList, issue, prefetch_line
from hummock.sstable.reader cimport OpenedSstable, SstableReader

from hummock.errors import Corruption

cdef enum:
    TOGETHER = 16               # sources whose filters are prefetched together


cdef struct RunFile:            # of a run; pointers are borrowed
    void* run                   # SortedRun
    void* reader                # SstableReader; NULL: no file of the run may hold the key
    PredictedRow predicted      # valid if `is_predicted`
    bint is_expected            # the hit bias predicts that the file holds the key
    bint is_predicted           # ... and its blocks are such that its row is predicted
    Py_ssize_t block            # else of the file that is expected to hold the key; -1: not known yet


cdef struct Answer:
    Slice value                 # data NULL: absent or deleted
    uint64_t epoch
    uint64_t newest             # entries with a greater epoch are not seen
    Admission admission         # of the missing block


cdef PartialBlock scratch = PartialBlock()      # of the current read, which does not release the GIL


def read_one(ReadView view not None, bytes key not None, epoch):
    """The value of `key` at `epoch` (None: the committed one), or None.

    Raises EpochTooOld, InvalidEpoch, or Corruption naming the object.
    """
    cdef Slice wanted
    cdef Answer answer
    cdef int source
    wanted.data, wanted.size = <const uint8_t*><const char*>key, len(key)
    answer.value.data, answer.value.size, answer.epoch, answer.admission = NULL, 0, 0, UNASKED
    source = look_up(view, wanted, epoch, &answer)
    if source < view.count:
        return read_from(view, wanted, epoch, source, answer.admission)
    if answer.value.data == NULL or (view.rules.count > 0 and is_hidden(view, wanted, answer.newest, answer.epoch)):
        return None
    return PyBytes_FromStringAndSize(<const char*>answer.value.data, answer.value.size)


cdef read_from(ReadView view, Slice key, epoch, int source, Admission admission):
    cdef PointReader reader = PointReader(view, epoch)
    cdef Probe probe
    reader.begin(&probe)
    reader.start(key)
    probe.source, probe.admission = source, admission
    reader.run(&probe, 1)
    if probe.value.data == NULL:
        return None
    return PyBytes_FromStringAndSize(<const char*>probe.value.data, probe.value.size)


cdef bint is_hidden(ReadView view, Slice key, uint64_t newest, uint64_t epoch) noexcept:
    cdef VnodeRule rule = view.rules.rule_of(head_of(key.data, key.size) >> 16, newest)
    return hides(&rule, key, epoch)


cdef int look_up(ReadView view, Slice key, epoch, Answer* answer) except -1:
    """Fills `answer` and returns the number of sources; or the first source that needs I/O."""
    cdef RunFile files[TOGETHER]
    cdef uint64_t hash = hash64(key.data, key.size)
    cdef Py_ssize_t row
    cdef int first = 0, number, end
    answer.newest = view.read_epoch(epoch) | SPILL_MASK
    while True:
        end = min(first + TOGETHER, <int>view.count)
        for number in range(first, end):
            if view.sources[number].run != NULL:
                foresee(view.sources[number].run, key, hash, answer.newest, &files[number - first])
        for number in range(first, end):
            if view.sources[number].run != NULL and files[number - first].block >= 0:
                foresee_row(&files[number - first], hash)
        for number in range(first, end):        # may build a filter, so nothing may be borrowed yet
            if view.sources[number].batch != NULL and (
                    (<SharedBufferBatch>view.sources[number].batch).filter is None):
                (<SharedBufferBatch>view.sources[number].batch).count_probes(1)
        for number in range(first, end):
            if view.sources[number].batch != NULL:
                if is_in_batch(view.sources[number].batch, key, answer.newest, hash, answer):
                    return <int>view.count
            elif files[number - first].reader != NULL:
                row = row_of(&files[number - first], key, hash, answer)
                if row == NEEDS_IO:
                    return number
                if row >= 0:
                    return <int>view.count
        if end == view.count:
            return end
        first = end


cdef inline void foresee(void* run, Slice key, uint64_t hash, uint64_t newest, RunFile* out) noexcept:
    """Finds the file of the run that may hold the key, and prefetches what is predicted to be read of it."""
    cdef PrefetchList lines
    cdef PyObject* opened
    out.run, out.reader, out.is_predicted, out.block = run, (<SortedRun>run).reader_of(key), False, -1
    out.is_expected = (<SortedRun>run).hit_bias >= LIKELY_HIT
    if out.reader == NULL:
        return
    if out.is_expected and (<SstableReader>out.reader).slots is not None and (
            (<SstableReader>out.reader).slots.is_predictable):
        lines.count = 0
        out.is_predicted = True
        out.predicted = (<SstableReader>out.reader).slots.predicted_row(key)
        (<SstableReader>out.reader).slots.enqueue_predicted(&lines, out.predicted)
        issue(&lines)
        return
    opened = (<SstableReader>out.reader).meta_slot.value if out.is_expected else NULL
    if opened != NULL:
        out.block = (<OpenedSstable>opened).index.find_block(key, newest)
        (<SstableReader>out.reader).slots.prefetch(out.block)
    elif (<SstableReader>out.reader).filter_blocks > 0:
        prefetch_line(filter_line(
            (<SstableReader>out.reader).filter_words, (<SstableReader>out.reader).filter_blocks, hash))


cdef inline void foresee_row(RunFile* file, uint64_t hash) noexcept:
    """Prefetches the bucket of the key in the block that is expected to hold it, while the filters of newer runs are
    on their way.
    """
    cdef PrefetchList lines
    cdef CacheSlot* slot = &(<SstableReader>file.reader).slots.entries[file.block]
    if slot.is_hashed:
        lines.count = 0
        enqueue_rows(&lines, slot, 0, hash)
        issue(&lines)


cdef bint is_in_batch(void* batch, Slice key, uint64_t newest, uint64_t hash, Answer* answer) noexcept:
    cdef Py_ssize_t row
    if (<SharedBufferBatch>batch).epoch > newest or (
            (<SharedBufferBatch>batch).filter is not None
            and not (<SharedBufferBatch>batch).filter.may_contain(hash)):
        return False
    row = (<SharedBufferBatch>batch).find(key)
    if row >= 0:
        answer.value, answer.epoch = (<SharedBufferBatch>batch).value_at(row), (<SharedBufferBatch>batch).epoch
    return row >= 0


cdef Py_ssize_t row_of(RunFile* file, Slice key, uint64_t hash, Answer* answer) noexcept:
    """The row of the answer in the file, NOT_HERE, or NEEDS_IO."""
    cdef Py_ssize_t row = UNDECIDED
    cdef int* found = &(<SortedRun>file.run).hit_bias
    if (<SortedRun>file.run).min_epoch > answer.newest:
        return NOT_HERE
    if file.is_predicted:
        row = predicted_row(file, key, answer)
    if row == UNDECIDED:
        row = indexed_row(file, key, hash, answer)
    if row >= 0 and found[0] < MAX_BIAS:
        found[0] += 1
    elif row == NOT_HERE and found[0] > 0:
        found[0] -= 1
    return row


cdef inline Py_ssize_t predicted_row(RunFile* file, Slice key, Answer* answer) noexcept:
    """The row of the answer in the block that should hold it, NOT_HERE, or UNDECIDED."""
    cdef CacheSlot* slot = &(<SstableReader>file.reader).slots.entries[file.predicted.block]
    cdef Py_ssize_t row
    if used(slot) == NULL:
        return UNDECIDED
    row = inner_row_by_slot(slot, file.predicted.share, key, answer.newest)
    if row != UNDECIDED:
        used((<SstableReader>file.reader).meta_slot)
        (<SstableReader>file.reader).admission.hits += 1
    if row >= 0:
        answer.value, answer.epoch = fixed_width_value(slot, row), slot.epoch
    return row


cdef Py_ssize_t indexed_row(RunFile* file, Slice key, uint64_t hash, Answer* answer) noexcept:
    """The row of the answer by filter and index, NOT_HERE, or NEEDS_IO."""
    cdef SstableReader reader = <SstableReader>file.reader
    cdef PyObject* found = used(reader.meta_slot)
    cdef OpenedSstable opened
    cdef CacheSlot* slot
    cdef Py_ssize_t block
    if found == NULL or (<OpenedSstable>found).bloom is None:
        return NEEDS_IO
    opened = <OpenedSstable>found
    reader.admission.meta_hits += 1
    if not file.is_expected and not opened.bloom.may_contain(hash):
        return NOT_HERE
    block = file.block if file.block >= 0 else opened.index.find_block(key, answer.newest)
    slot = &reader.slots.entries[block]
    if used(slot) != NULL:
        reader.admission.hits += 1
        return row_in_slot(slot, opened.index, block, key, hash, answer)
    if file.is_expected and not opened.bloom.may_contain(hash):
        return NOT_HERE
    return row_beside_cache(reader, opened, block, key, answer)


cdef Py_ssize_t row_in_slot(
    CacheSlot* slot, SstableIndex index, Py_ssize_t block, Slice key, uint64_t hash, Answer* answer
) noexcept:
    """As `indexed_row`, in the block that the slot holds."""
    cdef double share
    cdef PrefetchList lines
    cdef Py_ssize_t row
    lines.count = 0
    if slot.is_hashed:
        enqueue_rows(&lines, slot, 0, hash)
        issue(&lines)
        row = finish_by_hash(slot.value, begin_by_hash(slot.value, hash), key, answer.newest)
        if row >= 0:
            return answer_in_block(slot.value, row, answer)
    share = index.share_before(block, key)
    enqueue_rows(&lines, slot, share, hash)
    issue(&lines)
    row = row_by_slot(slot, share, key, answer.newest)
    if row >= 0:
        answer.value, answer.epoch = fixed_width_value(slot, row), slot.epoch
    elif row == UNDECIDED:
        row = row_by_heads(slot.value, share, key, answer.newest)
        if row >= 0:
            return answer_in_block(slot.value, row, answer)
    return NEEDS_IO if row == NEXT_BLOCK else row       # the slow path looks into the next block


cdef inline Py_ssize_t answer_in_block(void* block, Py_ssize_t row, Answer* answer) noexcept:
    answer.value, answer.epoch = (<Block>block).value_at(row), (<Block>block).epoch_at(row)
    return row


cdef Py_ssize_t row_beside_cache(
    SstableReader reader, OpenedSstable opened, Py_ssize_t block, Slice key, Answer* answer
) noexcept:
    """As `indexed_row`, in a block that is not to be cached, if its bytes are in this machine's page cache."""
    cdef Py_ssize_t row
    try:
        if reader.file is None or reader.file.is_closing:
            return NEEDS_IO
        answer.admission = ADMITTED if reader.admits(opened, block) else REFUSED
        if answer.admission == ADMITTED or scratch.read(
                reader.file, opened.index, block, False, True) == NOT_READ:
            return NEEDS_IO
    except (Corruption, MemoryError):
        return NEEDS_IO                 # the slow path reports the error
    row = row_by_keys(<void*>scratch.block, key, answer.newest)
    if row == NEXT_BLOCK:
        return NEEDS_IO
    if row >= 0:
        answer.value, answer.epoch = scratch.block.value_at(row), scratch.block.epoch_at(row)
        if not scratch.show(answer.value):
            return NEEDS_IO
    reader.file.was_used = True
    reader.admission.misses += 1
    return row
