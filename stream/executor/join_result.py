"""JoinResult: the changes of the result of a join, made of columns of both inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk, mask_of
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression, input_columns, remap
from relational.types import DataType


class JoinResult:
    """`types`: of the columns of each input that are part of the result: the first ones; of the left one alone if
    `has_pairs` is false. `condition`, over these columns of both inputs, must be true for a pair; `errors` counts the
    pairs for which it fails."""

    def __init__(
        self,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        condition: Expression | None,
        errors: ErrorCounts,
        *,
        has_pairs: bool,
    ) -> None:
        self._types, self._errors, self.has_pairs = types, errors, has_pairs
        self._evaluator: Evaluator | None = None
        read: list[int] = []
        if condition is not None:
            read = sorted(input_columns(condition)) or [0]
            self._evaluator = Evaluator(remap(condition, {old: new for new, old in enumerate(read)}))
        width = len(types[0])
        self.condition_columns = (
            [column for column in read if column < width], [column - width for column in read if column >= width])
        """Of each input those that the condition reads."""

    @property
    def has_condition(self) -> bool:
        return self._evaluator is not None

    def holds(self, number: int, own: Sequence[Column], other: Sequence[Column], op: Op | None) -> np.ndarray:
        """Whether the condition is true of pairs with these columns that it reads: bool[n]. `own`: of input `number`,
        of which the changes `op` are; None: pairs that do not change, whose errors do not count."""
        assert self._evaluator is not None
        columns = [*own, *other] if number == 0 else [*other, *own]
        if op is None:
            return mask_of(self._evaluator(DataChunk(columns), errors=None)).view(np.bool_)
        pairs = StreamChunk(columns, np.full(len(columns[0]), op, np.uint8))
        return mask_of(self._evaluator(pairs, errors=self._errors)).view(np.bool_)

    def pairs(self, number: int, own: Sequence[Column], other: Sequence[Column], op: Op) -> StreamChunk:
        """Changes of pairs, of which `own` are columns of input `number`."""
        left, right = (own, other) if number == 0 else (other, own)
        columns = [*left, *right] if self.has_pairs else list(left)
        return StreamChunk(columns, np.full(len(columns[0]), op, np.uint8))

    def alone(self, number: int, shown: Sequence[Column], rows: int, op: Op) -> StreamChunk:
        """Changes of so many rows of input `number`, with the columns `shown`, without a partner beside them."""
        absent = [Column.nulls(data_type, rows) for data_type in self._types[1 - number]]
        return self.pairs(number, shown, absent, op)
