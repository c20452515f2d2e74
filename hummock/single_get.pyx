"""A read of one key, as far as it needs nothing but memory.

On a store larger than the processor's caches a get costs what it waits for memory, one line after the other. So
everything is asked for as soon as its place is known: the lines of several runs' filters together; then, from where
the index lets the row stand among evenly growing keys, its head, offsets, key and value at once, before any of them
was looked at. In a run where the keys of late were found, that is before its filter has answered; elsewhere it would
bring lines for nothing. What is not at hand (a file or block to be read, a key that may stand in the next block) goes
on as a PointReader's read. Borrowed pointers live until the end of the call, which gives the GIL to nobody.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

from hummock.checksum cimport hash64
from hummock.iterator.row_rules cimport VnodeRule, hides
from hummock.key cimport SPILL_MASK, Slice, begins_with, head_of
from hummock.point_read cimport PointReader, Probe
from hummock.read_view cimport ReadView, SortedRun
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.block cimport Block
from hummock.sstable.block_cache cimport CachePlace, CacheShelf, used, want_rows
from hummock.sstable.cold_block cimport NOT_READ, ColdBlock
from hummock.sstable.early_lines cimport Lines, ask, want
from hummock.sstable.head_search cimport row_at, row_near
from hummock.sstable.index cimport SstableIndex
from hummock.sstable.plain_rows cimport ELSEWHERE, NOT_HERE, plain_row, plain_value
from hummock.sstable.reader cimport OpenedSstable, SstableReader

from hummock.errors import Corruption

cdef ColdBlock scratch = ColdBlock()        # of the read under way, which gives the GIL to nobody


def read_one(ReadView view not None, bytes key not None, epoch):
    """The value of `key` at `epoch`, or None. Raises EpochTooOld, InvalidEpoch, or Corruption naming the object."""
    cdef Slice wanted
    cdef Answer answer
    cdef uint64_t newest = view.checked(epoch) | SPILL_MASK
    cdef int source
    wanted.data, wanted.size = <const uint8_t*><const char*>key, len(key)
    answer.value.data, answer.value.size, answer.epoch, answer.is_admitted = NULL, 0, 0, False
    source = look_up(view, wanted, newest, &answer)
    if source < view.count:
        return read_from(view, wanted, epoch, source, answer.is_admitted)
    if answer.value.data == NULL or (view.rules.count > 0 and is_hidden(view, wanted, newest, answer.epoch)):
        return None
    return PyBytes_FromStringAndSize(<const char*>answer.value.data, answer.value.size)


cdef read_from(ReadView view, Slice key, epoch, int source, bint is_admitted):
    cdef PointReader reader = PointReader(view, epoch)
    cdef Probe probe
    reader.start(&probe, key)
    probe.source, probe.is_admitted = source, is_admitted
    reader.run(&probe, 1)
    if probe.value.data == NULL:
        return None
    return PyBytes_FromStringAndSize(<const char*>probe.value.data, probe.value.size)


cdef bint is_hidden(ReadView view, Slice key, uint64_t newest, uint64_t epoch) noexcept:
    cdef VnodeRule rule = view.rules.rule_of(head_of(key.data, key.size) >> 16, newest)
    return hides(&rule, key, epoch)


cdef int look_up(ReadView view, Slice key, uint64_t newest, Answer* answer) except -1:
    """Fills `answer` and gives the number of sources; or gives the first source that is not at hand."""
    cdef OpenFile files[TOGETHER]
    cdef uint64_t hash = hash64(key.data, key.size)
    cdef Py_ssize_t row
    cdef int first = 0, number, end
    while first < view.count:
        end = min(first + TOGETHER, <int>view.count)
        for number in range(first, end):        # it may make a filter, so nothing may be borrowed yet
            if view.sources[number].batch != NULL and (
                    (<SharedBufferBatch>view.sources[number].batch).filter is None):
                (<SharedBufferBatch>view.sources[number].batch).count_probes(1)
        for number in range(first, end):
            files[number - first].opened = NULL
            if view.sources[number].run != NULL and not open_file(
                    view.sources[number].run, key, newest, hash, &files[number - first]):
                end = number                    # those before it may have the answer
                break
        for number in range(first, end):
            if view.sources[number].batch != NULL:
                if is_in_batch(view.sources[number].batch, key, newest, hash, answer):
                    return <int>view.count
            elif files[number - first].opened != NULL:
                row = row_of(&files[number - first], key, newest, hash, answer)
                if row == NOT_AT_HAND:
                    return number
                if row >= 0:
                    return <int>view.count
        if end < view.count and end < first + TOGETHER:
            return end
        first = end
    return <int>view.count


cdef inline bint open_file(void* run, Slice key, uint64_t newest, uint64_t hash, OpenFile* out) noexcept:
    """Finds the file of the run that may hold the key and asks for the line of its filter; False: it is not open."""
    cdef PyObject* opened
    if (<SortedRun>run).min_epoch > newest:
        return True
    out.run, out.block = run, -1
    out.reader = (<SortedRun>run).reader_of(key)
    if out.reader == NULL:
        return True
    opened = used((<SstableReader>out.reader).meta_place)
    if opened == NULL or (<OpenedSstable>opened).bloom is None:
        return False
    (<SstableReader>out.reader).door.meta_hits += 1
    (<OpenedSstable>opened).bloom.prefetch(hash)
    out.opened = opened
    if (<SortedRun>run).found >= EXPECTED:
        aim(out, key, newest)
    return True


cdef inline void aim(OpenFile* file, Slice key, uint64_t newest) noexcept:
    """Finds the block and asks for the lines of the row."""
    cdef SstableIndex index = (<OpenedSstable>file.opened).index
    cdef CacheShelf shelf = (<SstableReader>file.reader).shelf
    cdef CachePlace* place
    cdef double even = index.even_place(key)
    cdef Py_ssize_t near = <Py_ssize_t>even
    cdef Lines lines
    lines.count = 0
    shelf.want_near(&lines, near, even - <double>near)
    want(&lines, &shelf.places[near])
    ask(&lines)
    file.block = index.find_near(key, newest, near)
    place = &shelf.places[file.block]
    file.share = index.share_before(file.block, key)
    want_rows(&lines, place, file.share)
    ask(&lines)


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


cdef Py_ssize_t row_of(OpenFile* file, Slice key, uint64_t newest, uint64_t hash, Answer* answer) noexcept:
    """The row of the answer in the file's block, NOT_HERE, or NOT_AT_HAND."""
    cdef CachePlace* place
    cdef Py_ssize_t row
    if not (<OpenedSstable>file.opened).bloom.may_contain(hash):
        if (<SortedRun>file.run).found > 0:
            (<SortedRun>file.run).found -= 1
        return NOT_HERE
    if file.block < 0:
        aim(file, key, newest)
    place = &(<SstableReader>file.reader).shelf.places[file.block]
    if used(place) == NULL:
        return row_beside_cache(<SstableReader>file.reader, <OpenedSstable>file.opened, file.block, key, newest, answer)
    (<SstableReader>file.reader).door.hits += 1
    row = plain_row(place, row_at(file.share, place.rows), key, newest)
    if row == ELSEWHERE:
        row = search(place.value, file.share, key, newest)
        if row >= 0:
            answer.value = (<Block>place.value).value_at(row)
            answer.epoch = (<Block>place.value).epoch_at(row)
    elif row == place.rows:
        return NOT_AT_HAND              # the key may begin the next block
    elif row >= 0:
        answer.value, answer.epoch = plain_value(place, row), place.epoch
    if row >= 0 and (<SortedRun>file.run).found < SURE:
        (<SortedRun>file.run).found += 1
    return row


cdef Py_ssize_t row_beside_cache(
    SstableReader reader, OpenedSstable opened, Py_ssize_t block, Slice key, uint64_t newest, Answer* answer
) noexcept:
    """The same in a block that is not to be cached, if its bytes are in this machine's memory."""
    cdef Py_ssize_t row
    try:
        if reader.file is None or reader.file.is_closing:
            return NOT_AT_HAND
        answer.is_admitted = reader.admits(opened, block)
        if answer.is_admitted or scratch.read(reader.file, opened.index, block, False) == NOT_READ:
            return NOT_AT_HAND
    except (Corruption, MemoryError):
        return NOT_AT_HAND                  # the ordinary way says what is wrong
    row = scratch.row_of(key, newest)
    if row == scratch.block.rows:
        return NOT_AT_HAND
    if row >= 0:
        answer.value, answer.epoch = scratch.block.value_at(row), scratch.block.epoch_at(row)
        if not scratch.show(answer.value):
            return NOT_AT_HAND
    reader.file.was_used = True
    reader.door.misses += 1
    return row


cdef Py_ssize_t search(void* block, double share, Slice key, uint64_t newest) noexcept nogil:
    cdef const uint64_t* heads
    cdef Py_ssize_t rows = (<Block>block).rows, row = row_at(share, rows), prefix
    cdef uint64_t head
    (<Block>block).prefetch_row(row)
    heads = (<Block>block).ready_heads()
    prefix = (<Block>block).prefix.size
    if not begins_with(key, (<Block>block).prefix):
        return NOT_AT_HAND
    head = head_of(key.data + prefix, key.size - prefix)
    row = row_near(heads, rows, head, row)
    if row == rows:
        return NOT_AT_HAND              # the key may begin the next block
    if heads[row] != head:
        return NOT_HERE
    if (<Block>block).is_version_of(row, key, newest, 8):
        return row
    row = (<Block>block).lower_bound(key, newest)
    if row == rows:
        return NOT_AT_HAND
    return row if (<Block>block).is_version_of(row, key, newest, 0) else NOT_HERE
