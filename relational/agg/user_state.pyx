"""UserStateKernel: the states of a user aggregate as bytes of each group, and the rows of a chunk that change them.

A state is replaced, never changed: a saved record keeps the bytes that it refers to until all are packed. What the
bytes mean is not known here, see `user_states`.
"""

import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport ArenaKernel, check_picks, counts_of, int64_at
from relational.chunk.column cimport Column, as_column

cdef struct UserState:
    int64_t rows        # that count
    int64_t start       # of the bytes in `arena`
    int64_t size        # 0: no row has changed it


cdef class UserStateKernel(ArenaKernel):
    """State: UserState, stored as (bytes BYTEA, rows BIGINT)."""

    cdef ByteBuffer ids, rows           # int32: groups, and rows of the chunk, that were added
    cdef ByteBuffer signs               # int8: 1 adds, -1 retracts

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(UserState)
        self.ids, self.rows, self.signs = ByteBuffer(), ByteBuffer(), ByteBuffer()

    def take_changes(self):
        """(groups int32[n], rows of the chunk int32[n], int8[n]: 1 adds, -1 retracts) since the last time."""
        found = (np.frombuffer(self.ids.to_bytes(), np.int32), np.frombuffer(self.rows.to_bytes(), np.int32),
                 np.frombuffer(self.signs.to_bytes(), np.int8))
        self.ids.size = self.rows.size = self.signs.size = 0
        return found

    def bytes_of(self, const int32_t[::1] groups not None):
        """The bytes of the states of groups, a BinaryColumn. IndexError."""
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef Py_ssize_t row, count = groups.shape[0], wrong = -1
        with nogil:
            for row in range(count):
                if groups[row] < 0 or groups[row] >= self.states.groups:
                    wrong = row
                    break
                out.append(self.text(<const UserState*>self.state(groups[row])))
        if wrong >= 0:
            raise IndexError(f"group {groups[wrong]} of {self.states.groups}")
        return out.finish()

    def set_bytes(self, const int32_t[::1] groups not None, BinaryColumn texts not None):
        """Replaces the states of groups, which were touched; one without a row is empty again. IndexError."""
        cdef Py_ssize_t row, count = groups.shape[0], wrong = -1
        if texts.rows != count:
            raise ValueError(f"{texts.rows} states for {count} groups")
        with nogil:
            for row in range(count):
                if groups[row] < 0 or groups[row] >= self.states.groups:
                    wrong = row
                    break
                self.replace(<UserState*>self.state(groups[row]), texts.at(row))
        if wrong >= 0:
            raise IndexError(f"group {groups[wrong]} of {self.states.groups}")

    def picked_bytes(self, const int32_t[::1] picks not None):
        """The bytes of the picked states, a BinaryColumn."""
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef Py_ssize_t row, count = picks.shape[0]
        check_picks(self, picks)
        with nogil:
            for row in range(count):
                out.append(self.text(<const UserState*>self.picked(picks[row])))
        return out.finish()

    def state_columns(self, const int32_t[::1] picks):
        """The bytes, and the rows that count."""
        return [as_column(self.picked_bytes(picks).to_arrow()), counts_of(self, picks)]

    cdef inline Slice text(self, const UserState* state) noexcept nogil:
        cdef Slice out
        out.data, out.size = self.arena.data + state.start, state.size
        return out

    cdef int replace(self, UserState* state, Slice text) except -1 nogil:
        if state.rows == 0 or text.size == 0:
            state.start = state.size = 0
            return 0
        state.start, state.size = self.arena.size, text.size
        return self.arena.append(text.data, text.size)

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef Py_ssize_t row, count = 0
        cdef int32_t* groups
        cdef int32_t* positions
        cdef int8_t* signs
        self.ids.reserve(rows * sizeof(int32_t))
        self.rows.reserve(rows * sizeof(int32_t))
        self.signs.reserve(rows)
        groups = <int32_t*>(self.ids.data + self.ids.size)
        positions = <int32_t*>(self.rows.data + self.rows.size)
        signs = <int8_t*>(self.signs.data + self.signs.size)
        for row in range(rows):
            if weights[row] == 0:
                continue
            (<UserState*>self.state(ids[row])).rows += weights[row]
            groups[count], positions[count], signs[count] = ids[row], <int32_t>(first + row), weights[row]
            count += 1
        self.ids.size += count * sizeof(int32_t)
        self.rows.size += count * sizeof(int32_t)
        self.signs.size += count
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef BinaryColumn texts = BinaryColumn.from_arrow((<Column>columns[0]).array)
        cdef Column counts = columns[1]
        cdef UserState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if found == NULL or found[row]:
                    state = <UserState*>self.state(ids[row])
                    state.rows = int64_at(counts, row)
                    if not texts.is_null(row):
                        self.replace(state, texts.at(row))
        return 0

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        cdef const UserState* before = <const UserState*>a
        cdef const UserState* after = <const UserState*>b
        return before.rows == after.rows and self.same_output(a, b)

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef Slice before = self.text(<const UserState*>a), after = self.text(<const UserState*>b)
        if before.size != after.size:
            return 0
        return before.data == after.data or memcmp(before.data, after.data, <size_t>before.size) == 0

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil:
        size[0] = (<UserState*>state).size
        return &(<UserState*>state).start
