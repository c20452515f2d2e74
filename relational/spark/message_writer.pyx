"""MessageWriter: encoded rows, grouped by target partition, as few large messages.

Passing a single row between Python and the JVM costs about as much as all other work of a load on it; so the JVM sees
messages of many rows, of which it knows only the partition.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn

cdef uint32_t ACCOUNT = 0xFFFFFFFF
cdef uint32_t REFUSAL = 0xFFFFFFFE
cdef uint64_t SPREAD = 0x9E3779B97F4A7C15      # odd, hence multiplication by it is invertible


cdef class MessageWriter:
    """For one sender; partitions are numbered from 0."""

    def __cinit__(self, int partitions, bint has_ranks=False):
        self.partitions, self.has_ranks, self.waiting = partitions, has_ranks, []
        self.messages = <Message*>calloc(<size_t>partitions, sizeof(Message))
        self.sent = <uint64_t*>calloc(<size_t>(2 * partitions), sizeof(uint64_t))
        if self.messages == NULL or self.sent == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.messages)
        free(self.sent)

    def add(self, keys, values, partitions, ranks=None) -> None:
        """Buffers rows: BinaryColumns without nulls, int32 partitions, and int64 ranks if the writer has them."""
        batch = (keys, values, np.ascontiguousarray(partitions, np.int32),
                 None if ranks is None else np.ascontiguousarray(ranks, np.int64))
        self.measure(batch)
        self.waiting.append(batch)
        self.nbytes += keys.nbytes + values.nbytes

    def take(self) -> tuple:
        """(partitions, a message for each) of all buffered rows, which are removed from the buffer."""
        messages = self.allocate()
        for batch in self.waiting:
            self.fill(batch)
        partitions = [partition for partition in range(self.partitions) if self.messages[partition].rows > 0]
        memset(self.messages, 0, <size_t>self.partitions * sizeof(Message))
        self.waiting, self.nbytes = [], 0
        return partitions, messages

    def accounts(self) -> list:
        """For each partition its account: the message that reports the rows sent to it."""
        cdef uint64_t numbers[3]
        cdef int partition
        found = []
        numbers[0] = ACCOUNT
        for partition in range(self.partitions):
            numbers[1], numbers[2] = self.sent[2 * partition], self.sent[2 * partition + 1]
            found.append(PyBytes_FromStringAndSize(<const char*>numbers, ACCOUNT_BYTES))
        return found

    @staticmethod
    def refusal(str reason) -> bytes:
        """The message that aborts a load."""
        return int(REFUSAL).to_bytes(HEAD_BYTES, "little") + reason.encode()

    cdef int measure(self, object batch) except -1:
        cdef BinaryColumn keys = batch[0], values = batch[1]
        cdef const int32_t[::1] partitions = batch[2]
        cdef Message* message
        cdef Py_ssize_t row
        cdef Slice key, value
        with nogil:
            for row in range(keys.rows):
                message = self.messages + partitions[row]
                key, value = keys.at(row), values.at(row)
                message.rows += 1
                message.key_bytes += key.size
                message.value_bytes += value.size
                self.sent[2 * partitions[row]] += 1
                self.sent[2 * partitions[row] + 1] += content_of(key, value)
        return 0

    cdef list allocate(self):
        """A message for each partition that receives rows, with its header."""
        cdef Message* message
        cdef Py_ssize_t by_row = 16 if self.has_ranks else 8
        cdef uint8_t* data
        cdef int partition
        made = []
        for partition in range(self.partitions):
            message = self.messages + partition
            if message.rows == 0:
                continue
            whole = PyBytes_FromStringAndSize(
                NULL, HEAD_BYTES + by_row * message.rows + message.key_bytes + message.value_bytes)
            data = <uint8_t*>PyBytes_AS_STRING(whole)
            (<uint32_t*>data)[0], (<uint32_t*>data)[1] = message.rows, self.has_ranks
            message.key_ends = data + HEAD_BYTES
            message.value_ends = message.key_ends + 4 * message.rows
            message.ranks = message.value_ends + 4 * message.rows
            message.keys = data + HEAD_BYTES + by_row * message.rows
            message.values = message.keys + message.key_bytes
            made.append(whole)
        return made

    cdef int fill(self, object batch) except -1:
        cdef BinaryColumn keys = batch[0], values = batch[1]
        cdef const int32_t[::1] partitions = batch[2]
        cdef const int64_t[::1] ranks
        cdef const int64_t* rank = NULL
        cdef Message* message
        cdef Py_ssize_t row
        cdef Slice key, value
        if self.has_ranks and keys.rows > 0:
            ranks = batch[3]
            rank = &ranks[0]
        with nogil:
            for row in range(keys.rows):
                message = self.messages + partitions[row]
                key, value = keys.at(row), values.at(row)
                memcpy(message.keys + message.key_end, key.data, <size_t>key.size)
                memcpy(message.values + message.value_end, value.data, <size_t>value.size)
                message.key_end += <uint32_t>key.size
                message.value_end += <uint32_t>value.size
                memcpy(message.key_ends, &message.key_end, 4)
                memcpy(message.value_ends, &message.value_end, 4)
                message.key_ends += 4
                message.value_ends += 4
                if rank != NULL:
                    memcpy(message.ranks, rank + row, 8)
                    message.ranks += 8
        return 0
