"""Write batches: sorted unique keys, one operation per key."""

import random

import numpy as np
import pyarrow as pa
import pytest

from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import KvBatch, WriteBatch
from hummock.errors import InvalidWriteBatch


def test_the_examples_of_the_design():
    assert list(WriteBatch([(b"a", b"1"), (b"b", b"2")])) == [(b"a", b"1"), (b"b", b"2")]
    with pytest.raises(InvalidWriteBatch, match="row 1: a key is in two rows"):
        WriteBatch([(b"a", b"1"), (b"a", None), (b"b", b"2")])
    with pytest.raises(InvalidWriteBatch, match="row 1: a key sorts before the key of the row above"):
        WriteBatch([(b"b", b"1"), (b"a", b"2")])


def test_a_key_that_is_a_prefix_of_another_sorts_before_it():
    assert len(WriteBatch([(b"", b""), (b"a", b""), (b"a\0", b""), (b"ab", b"")])) == 4
    with pytest.raises(InvalidWriteBatch):
        WriteBatch([(b"ab", b""), (b"a", b"")])


def test_null_keys_and_unequal_columns_are_refused():
    with pytest.raises(InvalidWriteBatch, match="row 1: a key is null") as caught:
        WriteBatch(pa.array([b"a", None]), pa.array([b"1", b"2"]))
    assert caught.value.row == 1
    with pytest.raises(InvalidWriteBatch, match="2 keys for 1 values"):
        WriteBatch(pa.array([b"a", b"b"]), pa.array([b"1"]))


def test_a_key_or_value_beyond_the_limit_is_refused():
    with pytest.raises(InvalidWriteBatch, match="row 1: a key is longer than 1048576 bytes"):
        WriteBatch([(b"a", b""), (b"b" * (1 << 20) + b"b", b"")])


def test_random_batches_are_judged_as_python_judges_them():
    rng = random.Random(13)
    for _ in range(500):
        keys = [rng.randbytes(rng.randrange(3)) for _ in range(rng.randrange(6))]
        if rng.random() < 0.5:
            keys = sorted(set(keys))
        is_valid = keys == sorted(set(keys))
        values = [rng.choice([None, b"", b"v"]) for _ in keys]
        if is_valid:
            assert list(WriteBatch(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))) == (
                list(zip(keys, values, strict=True)))
        else:
            with pytest.raises(InvalidWriteBatch):
                WriteBatch(zip(keys, values, strict=True))


def test_arrow_arrays_are_not_copied_but_small_slices_of_large_ones_are():
    keys = pa.array([b"%06d" % n for n in range(10_000)])
    batch = WriteBatch(keys, keys)
    assert batch.to_arrow().column(0).buffers()[2].address == keys.buffers()[2].address
    small = WriteBatch(keys.slice(5, 10), keys.slice(5, 10))
    assert small.keys.held_bytes < 10_000
    assert list(small) == [(b"%06d" % n, b"%06d" % n) for n in range(5, 15)]


def test_a_batch_is_a_record_batch_of_key_and_value():
    batch = KvBatch(BinaryColumn.from_pylist([b"k"]), [b"v"] and pa.array([b"v"]))
    assert batch.to_arrow() == pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"])})
    assert pa.record_batch(batch).to_pydict() == {"key": [b"k"], "value": [b"v"]}
    assert len(batch) == 1


def test_columns_of_a_message_share_its_memory_unless_most_of_it_is_others():
    def message_of(**columns):
        sink = pa.BufferOutputStream()
        batch = pa.record_batch(columns)
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return pa.ipc.open_stream(sink.getvalue()).read_next_batch()

    rows = pa.array([b"%06d" % number for number in range(10_000)])
    message = message_of(key=rows, value=rows)
    shared = WriteBatch(message["key"], message["value"]).to_arrow()
    assert shared.column(0).buffers()[2].address == message["key"].buffers()[2].address
    message = message_of(key=rows, value=rows, other=pa.array([b"x" * 100] * 10_000))
    copied = WriteBatch(message["key"], message["value"]).to_arrow()
    for index, name in enumerate(("key", "value")):
        assert copied.column(index).buffers()[2].address != message[name].buffers()[2].address
        assert copied.column(index).equals(message[name])


def test_offsets_end_at_two_gibibytes():
    data = pa.py_buffer(np.zeros(1 << 31, np.uint8))  # never touched
    huge = pa.Array.from_buffers(
        pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, 1 << 31], np.int64)), data])  # fmt: skip
    with pytest.raises((pa.ArrowInvalid, InvalidWriteBatch)):
        WriteBatch(pa.array([b"a"]), huge)
