"""The states of user aggregates that have them: changed by the rows of a chunk, for all of its groups at once.

A state is stored as the value encoding of its declared type; one byte, which is no such value, stands for a state that
is lost because a handler raised for it. Such a group has no result until it has no rows, or is gone: what other rows
added cannot be known any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.columnar.binary_column import BinaryColumn
from relational.agg.spec import AggSpec
from relational.agg.user_state import UserStateKernel
from relational.chunk.column import Column
from relational.chunk.scatter import scattered
from relational.encoding import ValueEncoder
from relational.errors import ConsistencyError
from relational.types import DataType
from relational.udf.function import UserFunction
from relational.udf.invoke import called_by_parts, changed_states, finished_states

LOST = b"\xff"


class UserStates(UserStateKernel):
    """The kernel of such a call. `settle` is due after each chunk, before anything else is asked of it."""

    def __init__(self, spec: AggSpec, strict: bool = False) -> None:
        super().__init__(spec, strict)
        assert spec.function is not None and spec.function.state is not None
        self._function: UserFunction = spec.function
        self._state_type: DataType = spec.function.state
        self._encoder = ValueEncoder([self._state_type])

    @property
    def overflow_reason(self) -> str:
        """The reason for a NULL result."""
        return f"function {self._function.name}: no value"

    def settle(self, columns: Sequence[Column]) -> None:
        """Applies the rows of a chunk that were added; `columns`: the arguments of the chunk. ConsistencyError for a
        retraction that the function does not take; FunctionFailed if strict."""
        ids, rows, signs = self.take_changes()
        if not len(ids):
            return
        groups, owners = np.unique(ids, return_inverse=True)
        states, lost = self._decoded(self.bytes_of(groups).to_arrow())
        order = np.argsort(owners, kind="stable")
        owners, rows, signs = owners[order], rows[order], signs[order]
        for sign, name in ((1, "accumulate"), (-1, "retract")):
            chosen = (signs == sign) & ~lost[owners]
            if not chosen.any():
                continue
            if sign < 0 and not self._function.retracts:
                raise ConsistencyError(f"a retraction from {self._function.name}, which is of rows that are inserted")
            arguments = [column.array.take(pa.array(rows[chosen])) for column in columns]
            states = self._changed(name, states, lost, owners[chosen], arguments)
        values = self._encoder.encode([Column(states, self._state_type)]).to_arrow()
        texts = pc.if_else(pa.array(lost), pa.scalar(LOST, values.type), values)
        self.set_bytes(groups, BinaryColumn.from_arrow(texts))

    def _changed(
        self, name: str, states: pa.Array, lost: np.ndarray, owners: np.ndarray, arguments: Sequence[pa.Array]
    ) -> pa.Array:
        """The states after some rows; `owners`: the group of each, ascending. Marks those that are `lost`."""
        touched = np.unique(owners)
        starts = np.append(np.searchsorted(owners, touched), len(owners))

        def change(first: int, last: int) -> pa.Array:
            within = slice(int(starts[first]), int(starts[last]))
            positions = np.searchsorted(touched[first:last], owners[within])
            given = [each.slice(within.start, within.stop - within.start) for each in arguments]
            return changed_states(self._function, name, states.take(pa.array(touched[first:last])), positions, given)

        found, at, failed = self._by_parts(change, len(touched), self._state_type)
        lost[touched[failed]] = True
        source = np.arange(len(states))
        source[touched[at]] = len(states) + np.arange(len(at))
        return pa.concat_arrays([states, found]).take(pa.array(source))

    def outputs(self, picks: np.ndarray) -> Column:
        """The results of the picked states; NULL of those without rows, and counted of lost ones."""
        states, lost = self._decoded(self.picked_bytes(picks).to_arrow())
        has_state = np.asarray(states.is_valid()) & ~lost
        chosen = np.flatnonzero(has_state)
        known = states.take(pa.array(chosen))

        def finish(first: int, last: int) -> pa.Array:
            return finished_states(self._function, known.slice(first, last - first))

        found, at, failed = self._by_parts(finish, len(chosen), self._function.returns)
        lost[chosen[failed]] = True
        self.count_overflow(int(np.count_nonzero(lost & (picks >= 0))) - int(np.count_nonzero(lost & (picks < 0))))
        return Column(scattered(found, chosen[at], len(picks)), self._function.returns)

    def _by_parts(
        self, call: Callable[[int, int], pa.Array], count: int, data_type: DataType
    ) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """(values, the positions of 0 to `count` that they are of, the positions without one). FunctionFailed if
        strict."""
        values, at, failed = called_by_parts(self._function, call, count, data_type, strict=self.strict)
        return values, at, np.concatenate([np.empty(0, np.int64), *failed.values()])

    def _decoded(self, texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(states, NULL of those that are empty or lost; bool[states]: which are lost)."""
        sizes = np.asarray(pc.binary_length(texts))
        lost = np.asarray(pc.equal(texts, pa.scalar(LOST, texts.type)), np.bool_).copy()
        known = np.flatnonzero((sizes > 0) & ~lost)
        (values,) = self._encoder.decode(texts.take(pa.array(known)))
        return scattered(values, known, len(texts)), lost
