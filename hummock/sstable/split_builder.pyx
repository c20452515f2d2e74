"""SplitSstableBuilder: full keys in order in, as many files out as their size asks for.

A cut falls between two user keys only: all versions of a key lie in one file, so that two files of one sorted run
never share a key.
"""

from libc.stdint cimport uint8_t, uint64_t

from hummock.key cimport Slice
from hummock.sstable.builder cimport SstableBuilder

from hummock.sstable.filter_policy import FilterPolicy


cdef class SplitSstableBuilder:
    """Builds a sorted run; `finish` gives its files in key order, none of them empty."""

    def __init__(self, options, policy: FilterPolicy, name_source, dict prefix_rules=None):
        self.options, self.policy, self.name_source = options, policy, name_source
        self.prefix_rules, self.sstable_bytes = prefix_rules or {}, options.sstable_bytes
        self.outputs = []

    cdef int add(self, Slice user_key, uint64_t epoch, Slice value) except -1 nogil:
        if not self.is_open:
            self.roll(True)
        elif self.current.bytes_so_far() >= self.sstable_bytes and self.current.ends_before(user_key):
            self.roll(True)
        return self.current.add(user_key, epoch, value)

    cdef int roll(self, bint open_next) except -1 with gil:
        """Finishes the file in the making, if there is one, and begins the next."""
        if self.is_open:
            finished, self.current, self.is_open = self.current, None, False
            self.outputs.append(finished.finish())
        if open_next:
            self.current = SstableBuilder(self.options, self.policy, self.name_source(), self.prefix_rules)
            self.is_open = True
        return 0

    def put(self, bytes user_key, uint64_t epoch, value) -> None:
        """Adds one entry; `value` None deletes. ValueError unless its full key is after all before it."""
        cdef Slice key, payload
        cdef bytes held = value if value is not None else b""
        key.data, key.size = <const uint8_t*><const char*>user_key, len(user_key)
        payload.data = NULL if value is None else <const uint8_t*><const char*>held
        payload.size = len(held)
        self.add(key, epoch, payload)

    def take_outputs(self) -> list:
        """The files finished since the last call, so that they can leave while the next one is built."""
        taken, self.outputs = self.outputs, []
        return taken

    def finish(self) -> list:
        """Finishes the file in the making; all files not taken yet. The builder begins anew."""
        self.roll(False)
        return self.take_outputs()
