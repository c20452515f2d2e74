"""Binary columns: import from Arrow, export to Arrow, memory released from any thread."""

import random
import threading

import pyarrow as pa
import pytest

from hummock.columnar.binary_column import BinaryColumn

ROWS = [b"a", None, b"", b"abc" * 50, None, b"\0\xff"]


def random_rows(rng: random.Random, count: int, nulls: float = 0.2) -> list[bytes | None]:
    return [None if rng.random() < nulls else rng.randbytes(rng.randrange(30)) for _ in range(count)]


def test_a_list_comes_back():
    column = BinaryColumn.from_pylist(ROWS)
    assert len(column) == column.rows == 6 and column.null_count == 2
    assert list(column) == ROWS
    assert column[-1] == b"\0\xff" and column[1] is None
    for row in (6, -7):
        with pytest.raises(IndexError):
            column[row]


def test_only_bytes_and_none_enter_a_list():
    with pytest.raises(TypeError):
        BinaryColumn.from_pylist(["text"])


@pytest.mark.parametrize("kind", [
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(),
    pa.dictionary(pa.int32(), pa.binary()), pa.binary(3),
])
def test_every_arrow_type_of_bytes_is_taken(kind):
    values = [b"abc", None, b"xyz", b"abc"]
    array = pa.array(values, pa.binary()).cast(kind) if not pa.types.is_dictionary(kind) else (
        pa.array(values, pa.binary()).dictionary_encode())
    assert list(BinaryColumn.from_arrow(array)) == values
    assert list(BinaryColumn.from_arrow(array.slice(1, 2))) == values[1:3]


def test_chunked_and_all_null_arrays_are_taken():
    chunked = pa.chunked_array([pa.array([b"a"]), pa.array([b"b", None])])
    assert list(BinaryColumn.from_arrow(chunked)) == [b"a", b"b", None]
    assert list(BinaryColumn.from_arrow(pa.nulls(2))) == [None, None]
    assert list(BinaryColumn.from_arrow(pa.chunked_array([], pa.binary()))) == []


def test_other_types_are_refused_by_name():
    with pytest.raises(TypeError, match="int64"):
        BinaryColumn.from_arrow(pa.array([1, 2]))


def test_offsets_that_fall_are_refused():
    broken = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(b"\0\0\0\0\5\0\0\0\2\0\0\0"), pa.py_buffer(b"abcde")])
    with pytest.raises(ValueError, match="do not ascend"):
        BinaryColumn.from_arrow(broken)


def test_binary_arrays_travel_without_a_copy():
    array = pa.array([b"a" * 100, b"b" * 100])
    column = BinaryColumn.from_arrow(array)
    assert column.to_arrow().buffers()[2].address == array.buffers()[2].address
    assert BinaryColumn.from_arrow(column) is column


def test_slices_are_the_rows_they_name_in_both_worlds():
    rng = random.Random(11)
    rows = random_rows(rng, 200)
    for column in (BinaryColumn.from_pylist(rows), BinaryColumn.from_arrow(pa.array(rows, pa.binary())),
                   BinaryColumn.from_arrow(pa.array([b"x", None, *rows], pa.binary()).slice(2))):
        for _ in range(50):
            start = rng.randrange(200)
            count = rng.randrange(200 - start)
            piece = column.slice(start, count)
            assert list(piece) == rows[start:start + count]
            assert piece.to_arrow().to_pylist() == rows[start:start + count]
            piece.to_arrow().validate(full=True)
            assert piece.null_count == piece.to_arrow().null_count
            assert list(BinaryColumn.from_arrow(piece.to_arrow())) == rows[start:start + count]
        with pytest.raises(IndexError):
            column.slice(100, 101)


def test_a_column_without_rows_is_an_arrow_array():
    column = BinaryColumn.from_pylist([])
    assert column.to_arrow().to_pylist() == [] == list(column)
    assert column.nbytes == 4


def test_memory_outlives_the_column_and_is_released_from_any_thread():
    arrays = [BinaryColumn.from_pylist([bytes([n]) * 10_000]).to_arrow() for n in range(50)]
    assert all(array[0].as_py() == bytes([n]) * 10_000 for n, array in enumerate(arrays))

    def release() -> None:
        while arrays:
            arrays.pop()

    threads = [threading.Thread(target=release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not arrays


def test_a_slice_says_how_much_it_keeps_alive():
    parent = pa.array([b"x" * 1_000] * 1_000)
    column = BinaryColumn.from_arrow(parent.slice(10, 2))
    assert column.nbytes < 2_100 and column.held_bytes > 1_000_000


@pytest.mark.slow
def test_a_column_ends_at_two_gibibytes_also_where_its_memory_reaches_further():
    part = bytes(590 << 20)
    with pytest.raises(OverflowError, match="2 GiB"):
        BinaryColumn.from_pylist([part] * 4)
