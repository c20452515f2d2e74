"""SlotSegments: the slots of a hash table that grows a segment at a time.

Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, 1979): a directory maps the high bits of a hash to a segment
of 4096 slots, within which slots are probed linearly. A segment that is full is divided in two, so no insertion waits
until a whole table is moved, and there are never two tables. The limits of segments differ, else all of them would be
divided within the same few per cent of growth.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from relational.hash.record_arena cimport RecordArena

cdef struct SlotTail:       # the last bytes of a slot; before them a table keeps what it likes
    uint32_t tag            # the upper half of the hash
    int32_t number          # negative if the slot is empty

cdef struct SegmentLoad:
    uint32_t used           # slots
    uint32_t limit          # the segment is divided beyond; less than its slots
    uint32_t depth          # bits of the tag that all its slots share

cdef struct SlotView:       # valid until a slot is added
    uint8_t* slots
    const uint32_t* directory
    uint32_t mask           # slots of a segment - 1
    int shift               # 32 - the bits of a tag that index the directory
    Py_ssize_t segment_bytes


cdef inline uint8_t* segment_of(const SlotView* view, uint32_t tag) noexcept nogil:
    """The slots among which one of this tag is found, from `tag & mask` on, cyclically."""
    return view.slots + view.directory[<uint64_t>tag >> view.shift] * view.segment_bytes


@cython.final
cdef class SlotSegments:
    cdef SlotView view
    cdef Py_ssize_t slot_bytes      # a multiple of 8
    cdef RecordArena slots          # segments of (mask + 1) * slot_bytes
    cdef RecordArena directory      # uint32: the index of the segment of these bits
    cdef RecordArena loads          # SegmentLoad of each segment

    cdef inline int count_added(self, uint32_t tag) except -1 nogil:
        """After a slot was filled. REQUIRES that views taken before are no longer used."""
        cdef SegmentLoad* load = <SegmentLoad*>self.loads.data
        load += self.view.directory[<uint64_t>tag >> self.view.shift]
        load.used += 1
        return self.divide(tag) if load.used > load.limit else 0

    cdef void clear(self) noexcept nogil        # empties all slots
    cdef void update_view(self) noexcept nogil
    cdef int divide(self, uint32_t tag) except -1 nogil
    cdef int widen(self) except -1 nogil
    cdef int double_directory(self) except -1 nogil
    cdef int divide_once(self, uint32_t index, uint32_t tag) except -1 nogil
    cdef void redirect(self, uint32_t tag, uint32_t depth, uint32_t added) noexcept nogil
    cdef uint32_t distribute(self, const uint8_t* taken, Py_ssize_t count, int bit, uint8_t* zeros,
                             uint8_t* ones) noexcept nogil
