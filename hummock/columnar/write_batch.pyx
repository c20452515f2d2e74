"""WriteBatch and KvBatch: keys and values side by side, in Arrow's layout.

A write batch holds writes of one epoch: user keys sorted by bytes, each once, each with a value or a tombstone. This
is checked once, here, and relied on everywhere else. Both types are immutable and may be read from any thread.
"""

import pyarrow as pa

from hummock.columnar.arrow_export import struct_of
from hummock.errors import InvalidWriteBatch

from hummock.base.key cimport Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn

cdef enum Fault:
    SOUND = 0
    NULL_KEY
    UNSORTED
    DUPLICATE
    LONG_KEY
    LONG_VALUE

cdef enum:
    SLACK_BYTES = 4096      # a parent array may be this much larger than a slice before the slice is copied


cdef class KvBatch:
    """Rows of (key, value); `len`, iteration over pairs of bytes, `to_arrow` without a copy.

    A null value (only in a WriteBatch) reads as None.
    """

    def __init__(self, keys, values):
        self.keys = BinaryColumn.from_arrow(keys)
        self.values = BinaryColumn.from_arrow(values)
        if self.keys.rows != self.values.rows:
            raise InvalidWriteBatch(f"{self.keys.rows} keys for {self.values.rows} values")

    def to_arrow(self) -> pa.RecordBatch:
        """The rows as a record batch of two binary columns, key and value, without a copy."""
        return pa.RecordBatch._import_from_c_capsule(*struct_of(self.keys, self.values))

    def __arrow_c_array__(self, requested_schema=None):
        return struct_of(self.keys, self.values)

    def __len__(self) -> int:
        return self.keys.rows

    def __iter__(self):
        return KvPairs(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.keys.rows} rows)"


cdef class KvPairs:
    """The rows of a batch as Python pairs."""

    def __cinit__(self, KvBatch batch not None):
        self.keys, self.values = batch.keys, batch.values

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_ssize_t row = self.row
        if row == self.keys.rows:
            raise StopIteration
        self.row = row + 1
        return self.keys.bytes_at(row), self.values.bytes_at(row)

    def __length_hint__(self) -> int:
        return self.keys.rows - self.row


cdef class WriteBatch(KvBatch):
    """Puts and deletes of one epoch: sorted, unique user keys; a null value is a tombstone.

    `WriteBatch(keys, values)` imports Arrow arrays of bytes without a copy (a slice that would keep alive memory of
    more than twice its size is copied); `WriteBatch(pairs)` accepts (bytes, bytes | None) pairs. InvalidWriteBatch
    names the first invalid row.
    """

    def __init__(self, keys, values=None):
        if values is None:
            keys, values = columns_of_pairs(keys)
        super().__init__(keys, values)
        of_keys, of_values = parents_of(keys), parents_of(values)
        if of_keys.keys().isdisjoint(of_values):
            self.keys = without_large_parent(self.keys, sum(of_keys.values()), self.keys.nbytes)
            self.values = without_large_parent(self.values, sum(of_values.values()), self.values.nbytes)
        else:   # columns share memory, e.g. of one message: keep it for both or for neither
            held, used = sum((of_keys | of_values).values()), self.keys.nbytes + self.values.nbytes
            self.keys = without_large_parent(self.keys, held, used)
            self.values = without_large_parent(self.values, held, used)
        check_batch(self.keys, self.values)
        self.size_bytes = self.keys.nbytes + self.values.nbytes


cdef check_batch(BinaryColumn keys, BinaryColumn values):
    cdef Py_ssize_t row = 0
    cdef Fault fault
    with nogil:
        fault = first_fault(keys, values, &row)
    if fault == SOUND:
        return
    key = keys[row]
    shown = key if key is None or len(key) <= 64 else key[:64] + b"..."
    raise InvalidWriteBatch(f"{REASONS[<int>fault]} (key {shown!r})", row)


REASONS = {
    NULL_KEY: "a key is null",
    UNSORTED: "a key sorts before the key of the row above it; keys must ascend by bytes",
    DUPLICATE: "a key is in two rows; a batch has one operation for a key",
    LONG_KEY: f"a key is longer than {MAX_KEY_BYTES} bytes",
    LONG_VALUE: f"a value is longer than {MAX_VALUE_BYTES} bytes",
}


cdef Fault first_fault(BinaryColumn keys, BinaryColumn values, Py_ssize_t* at) noexcept nogil:
    """The fault of the first invalid row, whose number is stored in `at`; SOUND if there is none."""
    cdef Py_ssize_t row
    cdef Slice key, last
    cdef int order
    for row in range(keys.rows):
        at[0] = row
        if keys.is_null(row):
            return NULL_KEY
        key = keys.at(row)
        if key.size > MAX_KEY_BYTES:
            return LONG_KEY
        if values.at(row).size > MAX_VALUE_BYTES:
            return LONG_VALUE
        if row > 0:
            order = compare_bytes(last, key)
            if order >= 0:
                return DUPLICATE if order == 0 else UNSORTED
        last = key
    return SOUND


cdef tuple columns_of_pairs(object pairs):
    cdef list keys = [], values = []
    for key, value in pairs:
        keys.append(key)
        values.append(value)
    return BinaryColumn.from_pylist(keys), BinaryColumn.from_pylist(values)


cdef BinaryColumn without_large_parent(BinaryColumn column, held_bytes, used_bytes):
    return column.copy() if held_bytes > 2 * used_bytes + SLACK_BYTES else column


cdef dict parents_of(source):
    """Memory that a foreign array keeps alive: bytes by address."""
    cdef dict found = {}
    if isinstance(source, BinaryColumn):
        return {id((<BinaryColumn>source).owner): (<BinaryColumn>source).held_bytes}
    if not isinstance(source, pa.Array):
        return {id(source): getattr(source, "nbytes", 0)}
    for buffer in source.buffers():
        if buffer is not None:
            while buffer.parent is not None:
                buffer = buffer.parent
            found[buffer.address] = buffer.size
    return found
