"""Batches exported as Arrow streams: zero copies, no leaks, no double frees."""

import pyarrow as pa
import pytest

from hummock.columnar.arrow_export import struct_of, table_of
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch

ROWS = [[(b"a", b"1"), (b"b", None)], [(b"c", b""), (b"dd", b"x" * 70)], [(b"e", b"5")]]


def batch_of(rows):
    keys, values = zip(*rows, strict=True)
    return KvBatch(BinaryColumn.from_pylist(list(keys)), BinaryColumn.from_pylist(list(values)))


def test_a_table_holds_the_rows_of_all_batches_in_chunks_of_their_own():
    table = table_of([batch_of(rows) for rows in ROWS])
    table.validate(full=True)
    assert table.schema == pa.schema([("key", pa.binary()), ("value", pa.binary())])
    assert [list(map(tuple, map(dict.values, part.to_pylist()))) for part in table.to_batches()] == ROWS
    assert table["key"].num_chunks == len(ROWS)


def test_a_table_of_no_batches_has_columns_and_no_rows():
    table = table_of([])
    assert (table.num_rows, table.column_names) == (0, ["key", "value"])


def test_rows_are_not_copied_and_outlive_their_batch():
    batch = batch_of(ROWS[1])
    before = batch.values.to_arrow().buffers()[2].address
    table = table_of([batch, batch])
    del batch
    assert [part.buffers()[2].address for part in table["value"].chunks] == [before] * 2
    assert table["value"].to_pylist() == [b"", b"x" * 70] * 2


def test_a_slice_of_columns_with_nulls_keeps_its_rows():
    batch = batch_of(ROWS[0] + ROWS[1])
    part = KvBatch(batch.keys.slice(1, 2), batch.values.slice(1, 2))
    assert table_of([part]).to_pylist() == [{"key": b"b", "value": None}, {"key": b"c", "value": b""}]
    assert pa.record_batch(part).to_pylist() == part.to_arrow().to_pylist() == table_of([part]).to_pylist()


def test_a_stream_that_fails_in_the_making_gives_back_what_it_took():
    with pytest.raises(TypeError):
        table_of([batch_of(ROWS[0]), KvBatch.__new__(KvBatch)])
    with pytest.raises(AttributeError):
        table_of([batch_of(ROWS[0]), object()])


def test_capsules_that_nobody_takes_release_what_they_hold():
    batch = batch_of(ROWS[1])
    schema, array = struct_of(batch.keys, batch.values)
    del schema, array
    assert list(batch) == ROWS[1]
