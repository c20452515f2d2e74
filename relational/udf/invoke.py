"""Calls of user functions over Arrow arrays: what they are given, and the check of what they answer.

A handler is given an array for each argument, in the Arrow type of its column; JSONB is text. It may answer with any
Arrow array, also one that another library exports, whose values its declared type can represent: a value that it cannot
raises InvalidValue, as a value from outside does. An answer that is wrong as a whole is a WrongAnswer.

    function         a value for each row
    table function   (rows, columns): for each row of the result the number of the row that it belongs to, from 0, and
                     its columns: arrays, a record batch, a table or a dict; one array for a single column, or
                     of structs
    aggregate        is given, first, int64 offsets: group g is the rows offsets[g] to offsets[g + 1]; a value for each
                     group

An aggregate with a state has no such handler, but `accumulate(states, groups, …)`, `retract` with the same arguments,
and `finish(states)`: states come as an array of the declared type, and go so.

Without an argument, a handler is given the number of rows. A row-wise one is called for each row with Python values,
and answers with a value or with the rows: tuples or dicts if they have several columns, values or tuples of one if they
have a single one; one of an aggregate for each group, with lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.arrow_import import imported
from relational.chunk.scatter import scattered
from relational.errors import FunctionFailed, InvalidValue, shortened
from relational.types.arrow_types import JSONB_ARROW
from relational.types.data_type import DataType, TypeKind
from relational.udf.function import UserFunction
from relational.udf.source import RAISED, described, loaded, loaded_parts

WRONG_FORM = "the answer is not of the declared form"
"""The reason of rows without a value, which is the same in whatever call they are: a retraction takes it back."""


class WrongAnswer(Exception):
    """An answer that is not of the declared form, whatever the rows."""


def scalar_results(function: UserFunction, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """A value of `function.returns` for each of `rows` rows."""
    handler, given = loaded(function), list(map(_given, columns))
    if function.is_row_wise:
        values = [handler(*row) for row in _python_rows(given, rows)]
        return _checked(function, pa.array(values, plain_type(function.returns)), rows, "row")
    return _checked(function, handler(*given) if given else handler(rows), rows, "row")


def table_results(function: UserFunction, columns: Sequence[pa.Array], rows: int) -> tuple[np.ndarray, pa.Array]:
    """(the row of each result, ascending: int64[results]; the results, of `function.returns`)."""
    handler, given = loaded(function), list(map(_given, columns))
    if function.is_row_wise:
        found = [list(handler(*row)) for row in _python_rows(given, rows)]
        owners = np.repeat(np.arange(rows), [len(each) for each in found])
        return owners, _row_wise_results(function, [each for results in found for each in results])
    answer = handler(*given) if given else handler(rows)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise WrongAnswer(f"a table function answers with (rows, columns), not with {_kind_of(answer)}")
    owners = _owners(answer[0], rows)
    results = _results(function, answer[1], len(owners))
    if (np.diff(owners) < 0).any():
        order = np.argsort(owners, kind="stable")
        owners, results = owners[order], results.take(pa.array(order))
    return owners, results


def group_results(function: UserFunction, columns: Sequence[pa.Array], offsets: np.ndarray) -> pa.Array:
    """A value of `function.returns` for each group, whose rows are those from one of `offsets` (int64[groups + 1]) to
    the next."""
    if function.state is not None:
        return _results_by_state(function, columns, offsets)
    handler, given, groups = loaded(function), list(map(_given, columns)), len(offsets) - 1
    if not function.is_row_wise:
        return _checked(function, handler(pa.array(offsets, pa.int64()), *given), groups, "group")
    bounds = list(zip(offsets[:-1].tolist(), np.diff(offsets).tolist(), strict=True))
    values = [handler(*(each.slice(*bound).to_pylist() for each in given)) for bound in bounds]
    return _checked(function, pa.array(values, plain_type(function.returns)), groups, "group")


def changed_states(
    function: UserFunction, name: str, states: pa.Array, groups: np.ndarray, columns: Sequence[pa.Array]
) -> pa.Array:
    """`states` of groups, NULL of new ones, after rows were accumulated or retracted, as `name` says; `groups`: the
    state of each row, int64[rows], ascending. Of `function.state`."""
    assert function.state is not None
    handler = loaded_parts(function)[name]
    answer = handler(_given(states), pa.array(groups, pa.int64()), *map(_given, columns))
    return _of_length(answer, len(states), "state", function.state)


def finished_states(function: UserFunction, states: pa.Array) -> pa.Array:
    """The results of states, none of them NULL."""
    if not len(states):
        return pa.nulls(0, function.returns.arrow)
    return _checked(function, loaded_parts(function)["finish"](_given(states)), len(states), "state")


def _results_by_state(function: UserFunction, columns: Sequence[pa.Array], offsets: np.ndarray) -> pa.Array:
    """Those of groups whose rows are all there."""
    assert function.state is not None
    groups = len(offsets) - 1
    owners = np.repeat(np.arange(groups), np.diff(offsets))
    states = changed_states(function, "accumulate", pa.nulls(groups, function.state.arrow), owners, columns)
    found = np.flatnonzero(np.asarray(states.is_valid()))
    results = finished_states(function, states.take(pa.array(found)))
    return scattered(results, found, groups)


def called_by_parts(
    function: UserFunction, call: Callable[[int, int], pa.Array], count: int, data_type: DataType, *, strict: bool
) -> tuple[pa.Array, np.ndarray, dict[str, np.ndarray]]:
    """(values of `data_type`, which of `count` positions they are of, by reason the positions without one).
    `call(first, last)` gives those of some positions. While it raises it is called for half of them, down to a single
    one; an answer of the wrong form is no value for all of its positions [R55]. FunctionFailed, instead of reasons, if
    `strict`."""
    values, at = [pa.nulls(0, data_type.arrow)], [np.empty(0, np.int64)]
    failed: dict[str, list[np.ndarray]] = {}
    todo = [(0, count)] if count else []
    while todo:
        first, last = todo.pop()
        try:
            values.append(call(first, last))
            at.append(np.arange(first, last))
        except MemoryError:
            raise
        except RAISED as error:
            has_answer = isinstance(error, WrongAnswer)
            if strict:
                raise FunctionFailed(function.name, str(error) if has_answer else described(error)) from error
            if has_answer or last - first == 1:
                reason = f"function {function.name}: {WRONG_FORM if has_answer else type(error).__name__}"
                failed.setdefault(reason, []).append(np.arange(first, last))
            else:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
    reasons = {reason: np.concatenate(parts) for reason, parts in failed.items()}
    return pa.concat_arrays(values), np.concatenate(at), reasons


def _checked(function: UserFunction, answer: Any, length: int, each: str) -> pa.Array:
    return _of_length(answer, length, each, function.returns)


def _of_length(answer: Any, length: int, each: str, data_type: DataType) -> pa.Array:
    array = _array_of(answer)
    if len(array) != length:
        raise WrongAnswer(f"it answered with {len(array)} values for {length} {each}s")
    return _typed(array, data_type)


def _typed(array: pa.Array | pa.ChunkedArray, data_type: DataType, name: str | None = None) -> pa.Array:
    """The array as a column of `data_type`; one without any value, which has no type, as NULLs."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), data_type.arrow)
    try:
        return imported(array, data_type, name)
    except InvalidValue as error:
        if error.row is None:
            raise WrongAnswer(f"{shortened(str(array.type))} is not {data_type}: {error.reason}") from error
        raise


def _array_of(answer: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        return answer
    if hasattr(answer, "__arrow_c_array__"):
        return pa.array(answer)
    if hasattr(answer, "__arrow_c_stream__"):
        return pa.chunked_array(answer)
    if isinstance(answer, np.ndarray):
        return pa.array(answer)
    raise WrongAnswer(f"an Arrow array is expected, it answered with {_kind_of(answer)}")


def _kind_of(answer: Any) -> str:
    size = f" of {len(answer)}" if isinstance(answer, tuple | list) else ""
    return f"a {type(answer).__module__}.{type(answer).__name__}{size}"


def _owners(answer: Any, rows: int) -> np.ndarray:
    array = _array_of(answer)
    if not pa.types.is_integer(array.type) or array.null_count:
        raise WrongAnswer(f"the rows of the results are numbers, without NULL, not {shortened(str(array.type))}")
    if len(array):
        bounds = pc.min_max(array)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if least < 0 or most >= rows:
            raise WrongAnswer(f"it answered with results of row {least if least < 0 else most}, of {rows} rows")
    return np.asarray(array.cast(pa.int64()))


def _results(function: UserFunction, answer: Any, count: int) -> pa.Array:
    """The columns of the results as one array of `function.returns`."""
    fields = function.returns.fields
    names = [field.name for field in fields] or [function.column]
    if isinstance(answer, pa.StructArray) and fields and len(answer) == count:
        return _typed(answer, function.returns)
    columns = _columns(answer, names)
    if len(columns) != len(names):
        raise WrongAnswer(f"it answered with {len(columns)} columns, {function.result} has {len(names)}")
    for name, column in zip(names, columns, strict=True):
        if len(column) != count:
            raise WrongAnswer(f"column {name!r} has {len(column)} values for {count} results")
    if not fields:
        return _typed(columns[0], function.returns)
    arrays = [_typed(column, field.data_type, field.name) for field, column in zip(fields, columns, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(function.returns.arrow))


def _columns(answer: Any, names: Sequence[str]) -> list[pa.Array | pa.ChunkedArray]:
    if isinstance(answer, pa.RecordBatch | pa.Table):
        answer = dict(zip(answer.schema.names, answer.columns, strict=True))
    if isinstance(answer, Mapping):
        is_named = set(names) <= answer.keys() and len(answer) == len(names)
        return [_array_of(answer[name]) for name in names] if is_named else list(map(_array_of, answer.values()))
    if isinstance(answer, tuple | list):
        return list(map(_array_of, answer))
    return [_array_of(answer)]


def _row_wise_results(function: UserFunction, found: list[Any]) -> pa.Array:
    """Rows, or values, as an array of `function.returns`."""
    names = [field.name for field in function.returns.fields]
    if function.column or not names:
        found = [each[0] if _is_row_of_value(each, function.returns) else each for each in found]
    if names:
        if not all(isinstance(each, Mapping) or _is_row(each, len(names)) for each in found):
            raise WrongAnswer(f"a row of {function.result} is a tuple of {len(names)} values")
        found = [each if isinstance(each, Mapping) else dict(zip(names, each, strict=True)) for each in found]
    return _typed(pa.array(found, plain_type(function.returns)), function.returns)


def _is_row_of_value(found: Any, data_type: DataType) -> bool:
    """Whether it is a row of one value, and not by itself a value of the type."""
    if not isinstance(found, tuple) or len(found) != 1:
        return False
    if data_type.fields:
        return len(data_type.fields) > 1 or isinstance(found[0], Mapping)
    element = data_type.element
    return element is None or (not element.is_nested and isinstance(found[0], tuple | list))


def _is_row(found: Any, width: int) -> bool:
    return isinstance(found, tuple | list) and len(found) == width


def _python_rows(given: Sequence[pa.Array], rows: int) -> Iterable[tuple[Any, ...]]:
    return zip(*(each.to_pylist() for each in given), strict=True) if given else [()] * rows


def _given(column: pa.Array) -> pa.Array:
    """A column without types of this package, which other libraries do not know."""
    plain = _plain_arrow(column.type)
    return column if plain is column.type else column.cast(plain)


@lru_cache(maxsize=1024)
def plain_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of an argument, or of a row-wise result: text for JSONB."""
    return pa.utf8() if data_type.kind is TypeKind.JSONB else _plain_arrow(data_type.arrow)


@lru_cache(maxsize=1024)
def _plain_arrow(arrow: pa.DataType) -> pa.DataType:
    if arrow == JSONB_ARROW:
        return pa.utf8()
    plain: Callable[[pa.Field], pa.Field] = lambda field: field.with_type(_plain_arrow(field.type))  # noqa: E731
    if pa.types.is_list(arrow):
        found: pa.DataType = pa.list_(plain(arrow.value_field))
    elif pa.types.is_struct(arrow):
        found = pa.struct(list(map(plain, arrow)))
    else:
        return arrow
    return arrow if found == arrow else found
