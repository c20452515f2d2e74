"""SplitSstableBuilder: full keys in order in, as many files out as size and borders ask for.

A cut falls between two user keys only: all versions of a key lie in one file, so that two files of one sorted run
never share a key.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from hummock.iterator.base cimport Entry
from hummock.sstable.builder cimport SstableBuilder, fill_entry

from hummock.sstable.filter_policy import FilterPolicy

cdef uint64_t NOWHERE = 0xFFFFFFFFFFFFFFFF


cdef class SplitSstableBuilder:
    """Builds a sorted run; `finish` gives its files in key order, none of them empty.

    `borders`: (table id, vnode) pairs; no file holds keys from both sides of one. `data_bytes`: as in SstableBuilder.
    `sink_of(name)` is the PieceSink that gets that file's pieces as they fill.
    """

    def __cinit__(self, options, policy: FilterPolicy, name_source, dict prefix_rules=None, borders=(),
                  Py_ssize_t data_bytes=0, sink_of=None):
        self.options, self.policy, self.name_source = options, policy, name_source
        self.prefix_rules, self.sstable_bytes = prefix_rules or {}, options.sstable_bytes
        self.outputs, self.data_bytes, self.sink_of = [], data_bytes, sink_of
        places = sorted({table_id << 16 | vnode for table_id, vnode in borders})
        self.borders = <uint64_t*>malloc(sizeof(uint64_t) * (len(places) + 1))
        if self.borders == NULL:
            raise MemoryError
        for place in places:
            self.borders[self.border_count] = place
            self.border_count += 1
        self.next_border = self.borders[0] if self.border_count > 0 else NOWHERE

    def __dealloc__(self):
        free(self.borders)

    cdef int add(self, const Entry* entry) except -1 nogil:
        if not self.is_open:
            self.pass_border(entry.high >> 16)
            self.roll(True)
        elif self.is_cut_before(entry):
            self.roll(True)
        return self.current.add(entry)

    cdef bint is_cut_before(self, const Entry* entry) noexcept nogil:
        if entry.high >> 16 >= self.next_border:
            self.pass_border(entry.high >> 16)
            return self.current.order_of(entry) < 0
        return self.current.bytes_so_far() >= self.sstable_bytes and self.current.order_of(entry) < 0

    cdef void pass_border(self, uint64_t place) noexcept nogil:
        """Finds the first border behind `place`."""
        cdef Py_ssize_t at = 0
        while at < self.border_count and self.borders[at] <= place:
            at += 1
        self.next_border = self.borders[at] if at < self.border_count else NOWHERE

    cdef int roll(self, bint open_next) except -1 with gil:
        """Finishes the file in the making, if there is one, and begins the next."""
        if self.is_open:
            built, self.current, self.is_open = self.current, None, False
            output = built.finish()
            if self.taker is None:
                self.outputs.append(output)
            else:
                built = None            # its memory leaves with the output
                self.taker(output)
                output = None
        if open_next:
            name = self.name_source()
            sink = None if self.sink_of is None else self.sink_of(name)
            self.current = SstableBuilder(
                self.options, self.policy, name, self.prefix_rules, self.data_bytes, sink)
            self.is_open = True
        return 0

    def put(self, bytes user_key, uint64_t epoch, value) -> None:
        """Adds one entry; `value` None deletes. ValueError unless its full key is after all before it."""
        cdef bytes held = value if value is not None else b""
        cdef Entry entry
        fill_entry(&entry, user_key, epoch, held, value is None)
        with nogil:                     # a piece that leaves may wait for others
            self.add(&entry)

    def hand_over_to(self, taker) -> None:
        """From here on `taker(output)` is called with each file when it is finished; None: files are kept."""
        self.taker = taker

    def take_outputs(self) -> list:
        """The files finished since the last call, so that they can leave while the next one is built."""
        taken, self.outputs = self.outputs, []
        return taken

    def finish(self) -> list:
        """Finishes the file in the making; all files not taken yet. The builder begins anew."""
        self.roll(False)
        self.next_border = self.borders[0] if self.border_count > 0 else NOWHERE
        return self.take_outputs()
