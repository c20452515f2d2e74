"""SlotSegments: the slots of a hash table that grows a segment at a time. One writer, no locks."""

cimport cython
from libc.string cimport memcpy, memset

cdef enum:
    FIRST_EXPONENT = 10     # log2 of the slots of an empty table: one segment, which doubles
    EXPONENT = 12           # log2 of the slots of a segment from then on
    MOST_BITS = 20          # of a tag that index the directory; the others of its 32 bits index a segment
    LEAST_LIMIT = 1802      # 44 % of the slots of a segment
    LIMITS = 1148           # up to 72 %


cdef inline uint32_t limit_of(uint32_t segment) noexcept nogil:
    """Evenly distributed over consecutive segments: multiples of the golden ratio, modulo 1."""
    cdef uint32_t fraction = segment * <uint32_t>0x9E3779B9
    return LEAST_LIMIT + <uint32_t>((<uint64_t>fraction * LIMITS) >> 32)


@cython.final
cdef class SlotSegments:
    """Slots of `slot_bytes`, of which the last eight are a SlotTail."""

    def __init__(self, Py_ssize_t slot_bytes):
        cdef SegmentLoad* load
        self.slot_bytes = slot_bytes
        self.slots, self.directory, self.loads = RecordArena(), RecordArena(), RecordArena()
        self.directory.extend(sizeof(uint32_t))
        self.loads.extend(sizeof(SegmentLoad))
        load = <SegmentLoad*>self.loads.data
        load.limit = (1 << FIRST_EXPONENT) * 5 // 8
        self.view.mask, self.view.shift = (1 << FIRST_EXPONENT) - 1, 32
        self.slots.reserve(slot_bytes << FIRST_EXPONENT)
        self.slots.size = slot_bytes << FIRST_EXPONENT
        self.clear()
        self.update_view()

    @property
    def size_bytes(self):
        """Memory used."""
        return self.slots.capacity + self.directory.capacity + self.loads.capacity

    cdef void clear(self) noexcept nogil:
        cdef SegmentLoad* loads = <SegmentLoad*>self.loads.data
        cdef Py_ssize_t segment
        memset(self.slots.data, 0xFF, <size_t>self.slots.size)
        for segment in range(self.loads.size // <Py_ssize_t>sizeof(SegmentLoad)):
            loads[segment].used = 0

    cdef void update_view(self) noexcept nogil:
        self.view.slots, self.view.directory = self.slots.data, <const uint32_t*>self.directory.data
        self.view.segment_bytes = (self.view.mask + 1) * self.slot_bytes

    cdef int divide(self, uint32_t tag) except -1 nogil:
        """Moves the slots of a segment whose next bit is set to a new one, until there is room for another slot of this
        tag."""
        cdef uint32_t index = self.view.directory[<uint64_t>tag >> self.view.shift]
        cdef SegmentLoad* load = <SegmentLoad*>self.loads.data + index
        while load.used > load.limit:
            if self.view.mask + 1 < 1 << EXPONENT:
                self.widen()
            else:
                if load.depth == 32 - self.view.shift:
                    self.double_directory()
                self.divide_once(index, tag)
            index = self.view.directory[<uint64_t>tag >> self.view.shift]
            load = <SegmentLoad*>self.loads.data + index
        return 0

    cdef int widen(self) except -1 nogil:
        """Doubles the only segment."""
        cdef SegmentLoad* load = <SegmentLoad*>self.loads.data
        cdef Py_ssize_t before = self.slots.size
        self.slots.reserve(2 * before)                      # the last third of it is a copy that is read
        memcpy(self.slots.data + 2 * before, self.slots.data, <size_t>before)
        memset(self.slots.data, 0xFF, <size_t>(2 * before))
        self.slots.size = 2 * before
        self.view.mask = 2 * self.view.mask + 1
        load.limit = 2 * load.limit if self.view.mask + 1 < 1 << EXPONENT else limit_of(0)
        self.update_view()
        self.distribute(self.slots.data + 2 * before, before // self.slot_bytes, 0, self.slots.data, self.slots.data)
        return 0

    cdef int double_directory(self) except -1 nogil:
        cdef Py_ssize_t entries = self.directory.size // <Py_ssize_t>sizeof(uint32_t), entry
        cdef uint32_t* directory
        if self.view.shift == 32 - MOST_BITS:
            with gil:
                raise OverflowError("thousands of keys have one hash")
        self.directory.extend(entries * sizeof(uint32_t))
        directory = <uint32_t*>self.directory.data
        for entry in range(entries - 1, -1, -1):
            directory[2 * entry] = directory[2 * entry + 1] = directory[entry]
        self.view.shift -= 1
        self.update_view()
        return 0

    cdef int divide_once(self, uint32_t index, uint32_t tag) except -1 nogil:
        """REQUIRES a directory of more bits than the tags of the segment share."""
        cdef Py_ssize_t size = self.view.segment_bytes
        cdef uint32_t added = <uint32_t>(self.slots.size // size)
        cdef SegmentLoad* loads
        cdef uint8_t* taken
        cdef uint32_t depth, moved
        self.slots.reserve(2 * size)                        # the second one is a copy that is read
        self.loads.extend(sizeof(SegmentLoad))
        loads = <SegmentLoad*>self.loads.data
        depth = loads[index].depth
        self.slots.size += size
        self.update_view()
        taken = self.slots.data + self.slots.size
        memcpy(taken, self.slots.data + index * size, <size_t>size)
        memset(self.slots.data + index * size, 0xFF, <size_t>size)
        memset(self.slots.data + added * size, 0xFF, <size_t>size)
        moved = self.distribute(taken, self.view.mask + 1, 31 - depth, self.slots.data + index * size,
                                self.slots.data + added * size)
        loads[added].used, loads[added].limit, loads[added].depth = moved, limit_of(added), depth + 1
        loads[index].used, loads[index].depth = loads[index].used - moved, depth + 1
        self.redirect(tag, depth, added)
        return 0

    cdef void redirect(self, uint32_t tag, uint32_t depth, uint32_t added) noexcept nogil:
        """The tags that share `depth` bits with this one and then have a 1 are in segment `added`."""
        cdef uint32_t* directory = <uint32_t*>self.directory.data
        cdef uint64_t half = <uint64_t>1 << (31 - depth) >> self.view.shift, entry
        cdef uint64_t first = ((<uint64_t>tag >> (32 - depth) << (32 - depth)) >> self.view.shift) + half
        for entry in range(first, first + half):
            directory[entry] = added

    cdef uint32_t distribute(self, const uint8_t* taken, Py_ssize_t count, int bit, uint8_t* zeros,
                             uint8_t* ones) noexcept nogil:
        """Inserts the used slots of `taken` into empty ones, by this bit of their tags; how many are in `ones`."""
        cdef const SlotTail* tail
        cdef uint8_t* segment
        cdef Py_ssize_t size = self.slot_bytes, slot, word
        cdef uint64_t at
        cdef uint32_t is_one, moved = 0
        for slot in range(count):
            tail = <const SlotTail*>(taken + (slot + 1) * size) - 1
            if tail.number < 0:
                continue
            is_one = tail.tag >> bit & 1
            moved += is_one
            segment = zeros + is_one * (ones - zeros)
            at = tail.tag & self.view.mask
            while (<const SlotTail*>(segment + (at + 1) * size) - 1).number >= 0:
                at = (at + 1) & self.view.mask
            for word in range(size // 8):
                (<uint64_t*>(segment + at * size))[word] = (<const uint64_t*>(taken + slot * size))[word]
        return moved
