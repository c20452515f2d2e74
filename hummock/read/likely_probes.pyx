"""Keys of a call that are answered by their likely rows, before filter and index are asked.

What a single get does for one key (`single_get.pyx`) is done here for many side by side, in three rounds that each ask
for what the next one reads: what the shelf says of the likely block, then place and row, then the answer.
"""

from hummock.read.point_read cimport DONE, SEEKING
from hummock.read.view cimport SURE, SortedRun
from hummock.sstable.cache.block_cache cimport CachePlace, LikelyRow, used
from hummock.sstable.interpolation_search cimport row_at
from hummock.sstable.plain_rows cimport ELSEWHERE, NOT_HERE, inner_row, plain_value
from hummock.sstable.prefetch cimport Lines, ask, want
from hummock.sstable.reader cimport SstableReader


cdef Py_ssize_t answer_likely(void* run, int number, Probe* probes, Py_ssize_t count, uint64_t newest) noexcept:
    cdef Probe* probe
    cdef Py_ssize_t position, row, here = 0, answered = 0
    ask_likely(run, number, probes, count)
    for position in range(count):
        probe = &probes[position]
        if probe.is_likely:
            row = likely_answer(probe, &(<SstableReader>probe.reader).shelf.places[probe.block_index], newest)
            answered += row != ELSEWHERE
            here += row >= 0
            if row == NOT_HERE:
                probe.source = number + 1
    if answered > 0:
        (<SstableReader>(<SortedRun>run).files[0].reader).door.hits += answered
        (<SortedRun>run).found = SURE if 2 * here >= answered else 0
    return answered


cdef inline void ask_likely(void* run, int number, Probe* probes, Py_ssize_t count) noexcept:
    """Marks the probes that are likely to find a row in the run, and asks for its lines."""
    cdef Probe* probe
    cdef LikelyRow likely
    cdef Lines lines
    cdef Py_ssize_t position
    lines.count = 0
    for position in range(count):
        probe = &probes[position]
        probe.is_likely = False
        if probe.state == SEEKING and probe.source <= number:
            probe.reader = (<SortedRun>run).reader_of(probe.key)
            if probe.reader != NULL and (<SstableReader>probe.reader).shelf is not None:
                probe.is_likely = True
                want(&lines, (<SstableReader>probe.reader).shelf.spot_of(probe.key))
    ask(&lines)
    for position in range(count):
        probe = &probes[position]
        if probe.is_likely:
            likely = (<SstableReader>probe.reader).shelf.likely_row(probe.key)
            (<SstableReader>probe.reader).shelf.want_likely(&lines, likely)
            probe.block_index, probe.row_share = likely.block, likely.share
    ask(&lines)


cdef inline Py_ssize_t likely_answer(Probe* probe, CachePlace* place, uint64_t newest) noexcept:
    """The row of the answer in the place's block, NOT_HERE, or ELSEWHERE."""
    cdef Py_ssize_t row
    if used(place) == NULL:
        return ELSEWHERE
    row = inner_row(place, row_at(probe.row_share, place.rows), probe.key, newest)
    if row != ELSEWHERE:
        used((<SstableReader>probe.reader).meta_place)
    if row >= 0:
        probe.value, probe.epoch, probe.state = plain_value(place, row), place.epoch, DONE
        probe.block, probe.place = <void*>place.value, place
    return row
