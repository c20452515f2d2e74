"""The merge loop: moves all entries of an iterator into a builder without the GIL. The only writer of files.

Merge, retention, splitting, building and compression are chained calls in C; a flush and a compaction differ only in
their iterator and in what it retains. The GIL is acquired at the end of a file unless the builder is served.
"""

from libc.stdint cimport int64_t, uint64_t

from hummock.base.foreground cimport ForegroundWork
from hummock.base.key cimport SPILL_MASK
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator
from hummock.sstable.multi_builder cimport MultiSstableBuilder


cdef enum:
    PULL_ENTRIES = 256


def run_pipeline(HummockIterator source not None, MultiSstableBuilder builder not None, take, flush=None,
                 ForegroundWork foreground=None) -> int:
    """Adds every entry of `source`, a forward iterator, to `builder`; returns how many.

    `take(output)` is called with each SstableOutput as soon as it is finished, in key order: on the thread that serves
    the builder, else on this one, before the next file is begun. If it blocks, the merge eventually blocks too. With
    `flush` (0..65535) every entry is stored under that spill offset of its pure epoch; this REQUIRES that `source` has
    at most one operation per key and pure epoch. While there is `foreground` work the merge pauses.
    """
    cdef uint64_t cleared = 0 if flush is None else SPILL_MASK, offset = 0 if flush is None else flush
    cdef Entry entries[PULL_ENTRIES]
    cdef Py_ssize_t rows = 0, count = 1
    cdef int64_t work_until = 0
    if source.direction != FORWARD:
        raise ValueError("files are built in ascending order: the source must walk forward")
    if not 0 <= offset <= SPILL_MASK:
        raise ValueError(f"flush {offset} does not fit into 16 bits")
    builder.send_outputs_to(take)
    try:
        with nogil:
            source.rewind()
            source.pulled = 0
            while count > 0:
                if foreground is not None:
                    work_until = foreground.pause(work_until)
                count = source.pull(entries, PULL_ENTRIES)
                rows += count
                add_all(builder, entries, count, ~cleared, offset)
            builder.end_all()
    finally:
        builder.send_outputs_to(None)
    return rows


cdef int add_all(
    MultiSstableBuilder builder, Entry* entries, Py_ssize_t count, uint64_t kept_bits, uint64_t offset
) except -1 nogil:
    cdef Py_ssize_t at
    for at in range(count):
        entries[at].epoch = (entries[at].epoch & kept_bits) | offset
        builder.add(&entries[at])
    return 0
