"""CellEncoder and CellJoin: rows to one entry per value, and back."""

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.chunk import Column
from relational.encoding import CellEncoder, CellJoin, KeyEncoder, ValueEncoder
from relational.errors import EncodingError
from relational.types import DataType
from tests.relational.random_rows import ALL, columns_of, mutated, random_rows

THREE = ValueEncoder([DataType.INT, DataType.VARCHAR, DataType.BIGINT], [4, 0, 9])


def encoded(encoder, rows):
    return encoder.encode(columns_of(list(encoder.types), rows) if encoder.types else (), rows=len(rows))


def keys_of(rows):
    return KeyEncoder([DataType.BIGINT]).encode([Column.from_pylist(range(rows), DataType.BIGINT)])


def shown(keys, values):
    """Each entry as `key: value` in hexadecimal; `-` for a tombstone."""
    return [f"{key.hex()}: {'-' if value is None else value.hex()}" for key, value in zip(keys, values, strict=True)]


def joined(encoder, entries, **options):
    join = CellJoin(CellEncoder(encoder), **options)
    join.take(*entries)
    keys, values, _ = join.rows(is_end=True)
    return list(keys), values


def test_a_row_is_an_entry_that_says_so_and_one_per_value():
    values = encoded(THREE, [(1, "ab", None)])
    entries = CellEncoder(THREE).split(BinaryColumn.from_pylist([b"k"]), values)
    assert shown(*entries) == ["6b00000000: ", "6b00000001: 6162", "6b00000005: 01000000", "6b0000000a: -"]


def test_an_update_is_the_entries_that_changed():
    old = encoded(THREE, [(1, "ab", None), (2, None, 7), (3, "x", 7)])
    new = encoded(THREE, [(1, "ab", 9), (2, "", None), (3, "x", 7)])
    entries = CellEncoder(THREE).split(BinaryColumn.from_pylist([b"a", b"b", b"c"]), new, old)
    assert shown(*entries) == ["610000000a: 0900000000000000", "6200000001: ", "620000000a: -"]


def test_a_row_that_is_gone_takes_every_entry_along():
    deleted = BinaryColumn.from_pylist([None])
    entries = CellEncoder(THREE).split(BinaryColumn.from_pylist([b"k"]), deleted, encoded(THREE, [(1, None, None)]))
    assert shown(*entries) == ["6b00000000: -", "6b00000001: -", "6b00000005: -", "6b0000000a: -"]


@pytest.mark.parametrize("is_reverse", [False, True])
def test_rows_come_back_in_batches_of_any_size_with_columns_dropped_and_added(rng, is_reverse):
    for _ in range(30):
        ids = rng.sample(range(40), 6)
        kinds = dict(zip(ids, [rng.choice(ALL) for _ in ids], strict=True))
        written, asked = rng.sample(ids, rng.randrange(5)), rng.sample(ids, rng.randrange(5))
        rows = random_rows(rng, [kinds[id_] for id_ in written], 50)
        writer, reader = (ValueEncoder([kinds[id_] for id_ in chosen], chosen) for chosen in (written, asked))
        cells = CellEncoder(writer).split(keys_of(50), encoded(writer, rows))
        assert list(cells[0]) == sorted(cells[0])
        present = [(key, value) for key, value in zip(*cells, strict=True) if value is not None]
        present = present[::-1] if is_reverse else present
        join, found_keys, found = CellJoin(CellEncoder(reader), is_reverse=is_reverse), [], []
        while present:
            size = rng.randrange(1, 40)
            part, present = present[:size], present[size:]
            join.take(*(BinaryColumn.from_pylist(list(column)) for column in zip(*part, strict=True)))
            keys, values, _ = join.rows(is_end=not present)
            found_keys, found = found_keys + list(keys), found + list(values)
        expected = encoded(reader, [
            tuple(row[written.index(id_)] if id_ in written else None for id_ in asked) for row in rows
        ])
        order = slice(None, None, -1) if is_reverse else slice(None)
        assert found_keys == list(keys_of(50))[order]
        assert found == list(expected)[order]


def test_rows_of_two_owners_are_two_though_their_keys_are_one():
    keys, values = CellEncoder(THREE).split(BinaryColumn.from_pylist([b"k"]), encoded(THREE, [(1, "ab", 2)]))
    twice = [BinaryColumn.from_pylist(list(column) * 2) for column in (keys, values)]
    join = CellJoin(CellEncoder(THREE))
    join.take(*twice, np.repeat(np.array([0, 3], np.int32), len(keys)))
    found, _, owners = join.rows(is_end=True)
    assert list(found) == [b"k", b"k"] and owners.tolist() == [0, 3]


def test_entries_of_a_row_that_is_not_said_to_exist_are_passed_over():
    keys, values = CellEncoder(THREE).split(BinaryColumn.from_pylist([b"k"]), encoded(THREE, [(1, "ab", 2)]))
    assert joined(THREE, (keys.slice(1, 3), values.slice(1, 3)))[0] == []


def check_mutated(rng, encoder, entries):
    """Whether entries with one mutation are refused; if not, they decode to rows that encode again."""
    changed = [list(column) for column in entries]
    index, target = rng.randrange(len(changed[0])), rng.choice(changed)
    target[index] = mutated(rng, target[index])
    try:
        row_keys, values = joined(encoder, map(BinaryColumn.from_pylist, changed))
        arrays = encoder.decode(values)
    except EncodingError as error:
        assert error.reason
        return True
    for array in arrays:
        array.validate(full=True)
    written = encoder.encode([Column(array) for array in arrays], rows=len(row_keys))
    again = encoder.encode([Column(array) for array in encoder.decode(written)], rows=len(row_keys))
    assert list(again) == list(written)
    return False


def some_entries(rng, types, rows):
    encoder = ValueEncoder(types)
    keys, values = CellEncoder(encoder).split(keys_of(rows), encoded(encoder, random_rows(rng, types, rows, nulls=0)))
    return encoder, (list(keys), list(values))


def test_mutated_entries_are_refused_or_are_rows(rng):
    refused = 0
    for _ in range(10):
        encoder, entries = some_entries(rng, rng.sample(ALL, 3), 5)
        refused += sum(check_mutated(rng, encoder, entries) for _ in range(100))
    assert refused > 200


@pytest.mark.slow
def test_a_hundred_thousand_mutated_entries_of_every_type(rng):
    for round_ in range(1000):
        encoder, entries = some_entries(rng, [ALL[round_ % len(ALL)], rng.choice(ALL)], 2)
        for _ in range(100):
            check_mutated(rng, encoder, entries)


def test_what_is_no_row_and_no_entry_is_refused():
    key = BinaryColumn.from_pylist([b"k"])
    for raw in (b"", THREE.encode_row((1, "ab", 2))[:-1], ValueEncoder([DataType.INT]).encode_row((1,))):
        with pytest.raises(EncodingError):
            CellEncoder(THREE).split(key, BinaryColumn.from_pylist([raw]))
    with pytest.raises(ValueError, match="2 values"):
        CellEncoder(THREE).split(key, BinaryColumn.from_pylist([None, None]))
    for entries in ([(b"k\0\0", b"")], [(b"k\0\0\0\0", b"x")], [(b"k\0\0\0\0", b""), (b"k\0\0\0\5", b"123")],
                    [(b"k\0\0\0\0", b""), (b"k\0\0\0\0", b"")]):
        with pytest.raises(EncodingError, match=f"row {len(entries) - 1}"):
            joined(THREE, [BinaryColumn.from_pylist(list(column)) for column in zip(*entries, strict=True)])
