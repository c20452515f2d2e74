"""The one way in which entries become files: an iterator is drained into a builder without the GIL.

merge, retain, cut, build and compress are chained calls in C; a flush and a compaction differ only in the
iterator they give and in what it retains.
"""

from libc.stdint cimport uint64_t

from hummock.iterator.base cimport FORWARD, HummockIterator
from hummock.sstable.split_builder cimport SplitSstableBuilder

cdef uint64_t SPILL_MASK = 0xFFFF


def run_pipeline(HummockIterator source not None, SplitSstableBuilder builder not None, flush=None) -> int:
    """Adds every entry of `source`, which walks forward, to `builder`; returns how many.

    With `flush` (0..65535) every entry is stored under that spill offset of its pure epoch: REQUIRES that
    `source` has at most one operation on a key in a pure epoch.
    """
    cdef uint64_t cleared = 0 if flush is None else SPILL_MASK, offset = 0 if flush is None else flush
    cdef Py_ssize_t rows = 0
    if source.direction != FORWARD:
        raise ValueError("files are built in ascending order: the source must walk forward")
    if not 0 <= offset <= SPILL_MASK:
        raise ValueError(f"flush {offset} does not fit into 16 bits")
    with nogil:
        source.rewind()
        while source.valid:
            builder.add(source.user_key, (source.epoch & ~cleared) | offset, source.value)
            source.next()
            rows += 1
    return rows
