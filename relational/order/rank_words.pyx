"""Rows in the order of their groups and of words: the order of fixed-width keys, without their encoding.

The rows are distributed over the groups by counting; each group is sorted for itself, by insertion while it is short
and else by merging runs. Both are stable. Where only the first rows of a group matter those that may be among them are
found before, by one word: a heap has the least words so far of each group (partial sorting, see Knuth, The Art of
Computer Programming, volume 3).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    SHORT = 16              # rows of a run that is sorted by insertion
    BEGINS_BIT = 1
    DIFFERS_BIT = 2
    DISTINCT_BIT = 4

BEGINS, DIFFERS, DISTINCT = BEGINS_BIT, DIFFERS_BIT, DISTINCT_BIT
"""Of a row in the order: it is the first one of its group; it differs from the one before it in a key word, or in any
word, or is in another group."""


def rank_words(const int32_t[::1] groups not None, const uint64_t[:, ::1] words not None, Py_ssize_t keys,
               Py_ssize_t group_count):
    """The rows by group, `words` (uint64[n, m], ascending, the first ones the keys), and as they come: their numbers
    int32[n], and BEGINS, DIFFERS and DISTINCT of each of them, in this order, as uint8[n]. `groups`: below
    `group_count`, and not negative; IndexError for others."""
    cdef Py_ssize_t rows = groups.shape[0], width = words.shape[1], row, group
    if words.shape[0] != rows or not 0 <= keys <= width:
        raise ValueError(f"{rows} groups, {words.shape[0]} rows of {width} words, {keys} keys")
    for row in range(rows):
        if not 0 <= groups[row] < group_count:
            raise IndexError(f"group {groups[row]} of {group_count}")
    found, marks = np.empty(rows, np.int32), np.empty(rows, np.uint8)
    if rows == 0:
        return found, marks
    ends = np.zeros(group_count + 1, np.int32)
    scratch = np.empty(rows, np.int32)
    cdef int32_t[::1] order = found, end = ends, spare = scratch
    cdef uint8_t[::1] mark = marks
    cdef const uint64_t* base = &words[0, 0] if width else NULL
    with nogil:
        for row in range(rows):
            end[groups[row] + 1] += 1
        for group in range(group_count):
            end[group + 1] += end[group]
        for row in range(rows):
            order[end[groups[row]]] = <int32_t>row
            end[groups[row]] += 1
        row = 0
        for group in range(group_count):
            if end[group] > row:
                sort_rows(&order[row], &spare[row], end[group] - row, base, width)
                mark_rows(&order[row], &mark[row], end[group] - row, base, width, keys)
                row = end[group]
    return found, marks


def leading_rows(const int32_t[::1] groups not None, const uint64_t[::1] words not None, Py_ssize_t group_count,
                 Py_ssize_t most):
    """The rows that fewer than `most` rows of their group, at least 1, precede by their words: int32[n], ascending.
    None for all, as where no group has more rows. `groups`: below `group_count`, and not negative; IndexError for
    others."""
    cdef Py_ssize_t rows = groups.shape[0], row, group, total = 0, count = 0
    if words.shape[0] != rows or most < 1:
        raise ValueError(f"{rows} groups, {words.shape[0]} words, the first {most}")
    heap_starts, heap_sizes = np.zeros(group_count, np.int64), np.zeros(group_count, np.int64)
    cdef int64_t[::1] starts = heap_starts, sizes = heap_sizes
    for row in range(rows):
        if not 0 <= groups[row] < group_count:
            raise IndexError(f"group {groups[row]} of {group_count}")
        sizes[groups[row]] += 1
    for group in range(group_count):
        starts[group] = total if sizes[group] > most else -1
        total += most if sizes[group] > most else 0
        sizes[group] = 0
    if total == 0:
        return None
    heaps, found = np.empty(total, np.uint64), np.empty(rows, np.int32)
    cdef uint64_t[::1] least = heaps
    cdef int32_t[::1] out = found
    with nogil:
        for row in range(rows):
            group = groups[row]
            if starts[group] >= 0:
                sizes[group] = with_word(&least[starts[group]], sizes[group], most, words[row])
        for row in range(rows):
            if starts[groups[row]] < 0 or words[row] <= least[starts[groups[row]]]:
                out[count] = <int32_t>row
                count += 1
    return None if count == rows else found[:count]


cdef inline int64_t with_word(uint64_t* heap, int64_t size, Py_ssize_t most, uint64_t word) noexcept nogil:
    """Keeps the `most` least words in a heap, the greatest of them first; returns its size."""
    cdef int64_t at, child
    if size < most:
        at = size
        while at > 0 and heap[(at - 1) // 2] < word:
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = word
        return size + 1
    if word >= heap[0]:
        return size
    at, child = 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= word:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = word
    return size


cdef inline bint is_before(const uint64_t* one, const uint64_t* other, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t word
    for word in range(width):
        if one[word] != other[word]:
            return one[word] < other[word]
    return False


cdef void sort_rows(int32_t* order, int32_t* spare, Py_ssize_t rows, const uint64_t* words, Py_ssize_t width
                    ) noexcept nogil:
    """Sorts runs by insertion, then merges them in pairs between `order` and `spare`."""
    cdef Py_ssize_t first, run = SHORT, middle, last
    cdef int32_t* source = order
    cdef int32_t* target = spare
    if width == 0:
        return
    first = 0
    while first < rows:
        insert_rows(order + first, min(<Py_ssize_t>SHORT, rows - first), words, width)
        first += SHORT
    while run < rows:
        first = 0
        while first < rows:
            middle, last = min(first + run, rows), min(first + 2 * run, rows)
            merge_runs(source, target, first, middle, last, words, width)
            first = last
        source, target = target, source
        run *= 2
    if source != order:
        memcpy(order, source, rows * sizeof(int32_t))


cdef inline void insert_rows(int32_t* order, Py_ssize_t rows, const uint64_t* words, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t at, to
    cdef int32_t moved
    for at in range(1, rows):
        moved = order[at]
        to = at
        while to > 0 and is_before(words + moved * width, words + order[to - 1] * width, width):
            order[to] = order[to - 1]
            to -= 1
        order[to] = moved


cdef inline void merge_runs(const int32_t* source, int32_t* target, Py_ssize_t first, Py_ssize_t middle,
                            Py_ssize_t last, const uint64_t* words, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t one = first, other = middle, to
    for to in range(first, last):
        if one < middle and (other == last or not is_before(words + source[other] * width,
                                                            words + source[one] * width, width)):
            target[to] = source[one]
            one += 1
        else:
            target[to] = source[other]
            other += 1


cdef inline void mark_rows(const int32_t* order, uint8_t* mark, Py_ssize_t rows, const uint64_t* words,
                           Py_ssize_t width, Py_ssize_t keys) noexcept nogil:
    cdef Py_ssize_t at, word
    mark[0] = BEGINS_BIT | DIFFERS_BIT | DISTINCT_BIT
    for at in range(1, rows):
        mark[at] = 0
        for word in range(width):
            if words[order[at] * width + word] != words[order[at - 1] * width + word]:
                mark[at] = DISTINCT_BIT | (DIFFERS_BIT if word < keys else 0)
                break
