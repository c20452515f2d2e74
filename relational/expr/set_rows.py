"""Rows of set-returning functions: of each row of a chunk, one for each element of its longest list.

Several lists give their elements side by side, and NULL where one is shorter. Rows are made in slices, so that memory
depends on the lists alone; and fewer rows of the chunk are evaluated at once where their lists are too long together.
An update whose halves give rows of the same numbers is a sequence of updates, and deletions or insertions of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval import Evaluator, context_of
from relational.expr.eval_context import ErrorCounts, from_numbers, valid_rows
from relational.expr.expression import Expression
from relational.expr.kernel_call import PartTooLarge
from relational.expr.kernels.nested import elements
from relational.types.data_type import DataType


@dataclass(frozen=True, slots=True)
class _List:
    """The lists of one function: their elements, and of each row the first one and how many."""

    values: pa.Array
    starts: np.ndarray
    sizes: np.ndarray


class SetRows:
    """The columns `passed` of each row beside the elements of `functions`, expressions of lists, and the number of the
    element from 1 (BIGINT). `is_outer`: a row without elements comes once, with NULL for them and for the number."""

    def __init__(self, passed: Sequence[int], functions: Sequence[Expression], *, is_outer: bool = False) -> None:
        self._passed = tuple(passed)
        self._functions = [Evaluator(each) for each in functions]
        self._is_outer = is_outer

    def __call__(
        self, chunk: DataChunk, rows: int, *, strict: bool = False, errors: ErrorCounts | None = None
    ) -> Iterator[DataChunk]:
        """Chunks of at most `rows` rows (at least two), of changes if `chunk` has changes. A row whose function has no
        value is an EvaluationError if `strict`, else it gives no elements and is counted in `errors`."""
        dense = chunk.compact()
        todo = [dense] if dense.capacity else []
        while todo:
            part = todo.pop()
            try:
                lists = self._lists(part, strict, errors)
            except PartTooLarge:
                todo += reversed(_halves(part))
                continue
            yield from self._made(part, lists, rows)

    def _lists(self, part: DataChunk, strict: bool, errors: ErrorCounts | None) -> list[_List]:
        context = context_of(part, strict=strict, errors=errors)
        found = []
        for function in self._functions:
            value = function.value(context)
            if isinstance(value, pa.Scalar):  # of all rows
                same = value.values if value.is_valid else pa.nulls(0, value.type.value_type)
                starts = np.zeros(part.capacity, np.int64)
                found.append(_List(same, starts, np.full(part.capacity, len(same), np.int64)))
            else:
                ends, values = elements(value)
                sizes = np.where(valid_rows(value), np.diff(ends), 0).astype(np.int64)
                found.append(_List(values, ends[:-1].astype(np.int64), sizes))
        return found

    def _made(self, part: DataChunk, lists: Sequence[_List], rows: int) -> Iterator[DataChunk]:
        sizes = np.max([each.sizes for each in lists], axis=0)
        counts = np.maximum(sizes, 1) if self._is_outer else sizes
        ops = part.ops if isinstance(part, StreamChunk) else None
        paired = np.zeros_like(counts)
        if ops is not None and part.op_bits & Op.UPDATE_INSERT:  # the rows of an update come at its first half
            paired[:-1] = np.where(ops[:-1] == Op.UPDATE_DELETE, counts[1:], 0)
            counts = np.where(ops == Op.UPDATE_INSERT, 0, counts)
        ends = np.cumsum(counts + paired)
        start, total = 0, int(ends[-1])
        while start < total:
            at = np.arange(start, min(start + rows, total))
            owners = np.searchsorted(ends, at, "right")
            at -= (ends - counts - paired)[owners]
            made_ops = None
            if ops is not None:
                owners, at, made_ops = _changes(ops, owners, at, counts, paired, sizes)
                if made_ops[-1] == Op.UPDATE_DELETE:
                    owners, at, made_ops = owners[:-1], at[:-1], made_ops[:-1]
            columns = self._columns(part, lists, owners, at)
            start += len(owners)
            yield DataChunk(columns) if made_ops is None else StreamChunk(columns, made_ops)

    def _columns(
        self, part: DataChunk, lists: Sequence[_List], owners: np.ndarray, at: np.ndarray
    ) -> list[Column]:
        """Those of the rows number `at` of the rows `owners`."""
        passed = part.project(self._passed).take(owners.astype(np.int32)).columns if self._passed else ()
        found = []
        is_there = np.zeros(len(at), np.bool_)
        for each in lists:
            inside = at < each.sizes[owners]
            is_there |= inside
            source = np.where(inside, each.starts[owners] + at, 0)
            found.append(Column(each.values.take(pa.array(source, mask=None if inside.all() else ~inside))))
        return [*passed, *found, Column(from_numbers(at + 1, DataType.BIGINT.arrow, is_there))]


def _changes(
    ops: np.ndarray, owners: np.ndarray, at: np.ndarray, counts: np.ndarray, paired: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows of the chunk, numbers of their elements, ops), where of an update with `counts` rows before and `paired`
    ones after it both halves of a number follow each other. `sizes`: elements of each row; one without any has no
    number."""
    before, after = counts[owners], paired[owners]
    both = 2 * np.minimum(before, after)
    is_pair = ops[owners] == Op.UPDATE_DELETE
    is_after = np.where(at < both, at % 2 == 1, after > before) & is_pair
    has_number = [sizes[row] > 0 for row in (owners, np.minimum(owners + 1, len(sizes) - 1))]
    is_update = is_pair & (at < both) & (has_number[0] == has_number[1])
    made = np.where(is_after | (ops[owners] & Op.DELETE == 0), Op.INSERT, Op.DELETE)
    made = np.where(is_update, np.where(is_after, Op.UPDATE_INSERT, Op.UPDATE_DELETE), made).astype(np.uint8)
    return owners + is_after, np.where(at < both, at // 2, at - both // 2), made


def _halves(part: DataChunk) -> tuple[DataChunk, ...]:
    """A chunk of two rows or more in two parts, without splitting an update; an update alone as a deletion and an
    insertion."""
    middle = part.capacity // 2
    if isinstance(part, StreamChunk) and part.ops[middle - 1] == Op.UPDATE_DELETE:
        if part.capacity > 2:
            middle = middle + 1 if middle == 1 else middle - 1
        else:
            part = part.with_ops(np.array([Op.DELETE, Op.INSERT], np.uint8))
    return part.slice(0, middle), part.slice(middle, part.capacity - middle)
