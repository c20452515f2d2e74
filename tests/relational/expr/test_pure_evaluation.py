"""The result of a row does not depend on other rows: every function and cast, a chunk against its single rows.

tests/support/drivers/extremes.py enumerates the cases from the tables of functions and casts.
"""

import threading

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import EvaluationError
from relational.expr import ErrorCounts, evaluate, kernel_call
from relational.types import Field, Schema
from tests.support.drivers.extremes import branches, calls, casts, rows_of
from tests.support.drivers.seeds import amount

MOST_ROWS = 9
MOST_CAST_ROWS = amount(40, 120)


def schema_of(case):
    return Schema([Field(f"c{at}", each) for at, each in enumerate(case.types)])


def values(column):
    """Validates the column. Returns its values as text, so that NaN equals itself and -0.0 differs from 0.0."""
    column.array.validate(full=True)
    return [repr(value) for value in column.to_pylist()]


def one_by_one(case, whole):
    """(value, errors) of each row, copied into a chunk of its own."""
    found = []
    for at in range(whole.capacity):
        errors = ErrorCounts()
        chunk = DataChunk([column.array.take(pa.array([at])) for column in whole.columns], capacity=1)
        found.append((values(evaluate(case.expression, chunk, errors=errors))[0], errors.take()))
    return found


def summed(every):
    total = ErrorCounts()
    for errors in every:
        for reason, rows in errors.items():
            total.add(reason, rows)
    return total.take()


def with_garbage(chunk, rng):
    """The same rows with arbitrary values under the NULLs."""
    columns = []
    for column in chunk.columns:
        array = column.array
        if array.null_count and array.null_count < len(array) and not pa.types.is_nested(array.type):
            valid = array.is_valid()
            at = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
            source = np.arange(len(array))
            hidden = np.setdiff1d(source, at)
            source[hidden] = [rng.choice(at) for _ in hidden]
            filled = array.take(pa.array(source))
            storage = filled.storage if isinstance(filled, pa.ExtensionArray) else filled
            bits = pa.py_buffer(np.packbits(valid.to_numpy(zero_copy_only=False), bitorder="little"))
            buffers = [bits, *storage.buffers()[1:]]
            masked = pa.Array.from_buffers(storage.type, len(array), buffers, offset=storage.offset)
            is_extension = isinstance(filled, pa.ExtensionArray)
            array = pa.ExtensionArray.from_storage(array.type, masked) if is_extension else masked
        columns.append(array)
    return DataChunk(columns, capacity=chunk.capacity)


def check(case, rng, most):
    rows = rows_of(rng, case.types, most)
    whole = DataChunk.from_rows(schema_of(case), rows)
    alone = one_by_one(case, whole)
    expected = [value for value, _ in alone]
    ops = [rng.choice([Op.INSERT, Op.DELETE]) for _ in rows]
    errors = ErrorCounts()
    stream = StreamChunk(with_garbage(whole, rng).columns, np.array(ops, np.uint8))
    assert values(evaluate(case.expression, stream, errors=errors)) == expected
    signed = [{reason: count * (1 - 2 * (op & 1)) for reason, count in found.items()}
              for op, (_, found) in zip(ops, alone, strict=True)]
    assert errors.take() == summed(signed)
    start, stop = sorted((rng.randrange(len(rows) + 1), rng.randrange(len(rows) + 1)))
    shown = np.array([rng.random() < 0.5 for _ in range(start, stop)], np.uint8)
    part = whole.slice(start, stop - start).with_visibility(shown)
    got = values(evaluate(case.expression, part, errors=errors))
    kept = [at for at in range(stop - start) if shown[at]]
    assert [got[at] for at in kept] == [expected[start + at] for at in kept]
    assert errors.take() == summed(alone[start + at][1] for at in kept)
    fails = any(alone[start + at][1] for at in kept)
    try:
        strictly = values(evaluate(case.expression, part, strict=True))
        assert not fails and [strictly[at] for at in kept] == [got[at] for at in kept]
    except EvaluationError as error:
        assert fails and error.row is not None
    return 2 * len(rows) + 2 * (stop - start)


def sweep(cases, rng, most=MOST_ROWS):
    checked = rows = 0
    for case in cases:
        try:
            rows += check(case, rng, most)
        except BaseException as error:
            error.add_note(str(case))
            raise
        checked += 1
    print(f"{checked} cases, {rows} rows")
    return checked


@pytest.fixture
def raised(monkeypatch):
    """Reasons of the kernels that raised, in this thread, instead of marking the rows that fail."""
    found, thread = set(), threading.get_ident()
    by_parts = kernel_call._computed_by_parts

    def recorded(compute, evaluation, args, data_type, reason):
        if threading.get_ident() == thread:  # else a session of another test has not ended yet
            found.add(reason)
        return by_parts(compute, evaluation, args, data_type, reason)

    monkeypatch.setattr(kernel_call, "_computed_by_parts", recorded)
    return found


def test_every_cast(rng, raised):
    assert sweep(casts(), rng, MOST_CAST_ROWS) > 150
    assert not raised


def test_every_function(rng, raised):
    every = list(calls(rng))
    assert len(every) > 800
    assert sweep(rng.sample(every, amount(len(every) // 16, len(every) // 2)), rng) > amount(50, 400)
    assert not raised


def test_case_of_every_type(rng, raised):
    assert sweep(branches(), rng) > 50
    assert not raised
