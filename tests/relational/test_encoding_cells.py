"""CellEncoder: an entry per value, and back."""

import pytest

from hummock.binary_column import BinaryColumn
from relational.chunk import Column
from relational.encoding import CellEncoder, KeyEncoder
from relational.errors import EncodingError
from relational.types import DataType
from tests.relational.random_rows import ALL, columns_of, mutated, random_rows


def test_a_row_is_an_entry_that_says_so_and_one_per_value():
    encoder = CellEncoder([DataType.INT, DataType.VARCHAR, DataType.BIGINT], [4, 0, 9])
    columns = columns_of(list(encoder.types), [(1, "ab", None), (None, None, None)])
    keys, values = encoder.encode(BinaryColumn.from_pylist([b"k1", b"k2"]), columns)
    assert [key.hex() for key in keys] == ["6b3100000000", "6b3100000001", "6b3100000005", "6b3200000000"]
    assert [value.hex() for value in values] == ["", "6162", "01000000", ""]


def test_rows_come_back_in_key_order_with_columns_dropped_and_added(rng):
    for _ in range(30):
        ids = rng.sample(range(40), 6)
        kinds = dict(zip(ids, [rng.choice(ALL) for _ in ids], strict=True))
        written, asked = rng.sample(ids, rng.randrange(5)), rng.sample(ids, rng.randrange(5))
        rows = random_rows(rng, [kinds[id_] for id_ in written], 50)
        keys = KeyEncoder([DataType.BIGINT]).encode([Column.from_pylist(range(50), DataType.BIGINT)])
        entries = CellEncoder([kinds[id_] for id_ in written], written).encode(
            keys, columns_of([kinds[id_] for id_ in written], rows) if written else ()
        )
        assert list(entries[0]) == sorted(entries[0])
        found_keys, arrays = CellEncoder([kinds[id_] for id_ in asked], asked).decode(*entries)
        assert list(found_keys) == list(keys)
        for id_, array in zip(asked, arrays, strict=True):
            place = written.index(id_) if id_ in written else None
            expected = [None if place is None else row[place] for row in rows]
            assert Column(array).data_type == kinds[id_]
            text = str(Column(array).to_pylist()).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
            assert text == str(expected)


def test_mutated_entries_are_refused_or_are_rows(rng):
    types = rng.sample(ALL, 3)
    encoder = CellEncoder(types)
    keys = KeyEncoder([DataType.INT]).encode([Column.from_pylist(range(20), DataType.INT)])
    cell_keys, values = map(list, encoder.encode(keys, columns_of(types, random_rows(rng, types, 20))))
    for _ in range(500):
        place, at_key = rng.randrange(len(values)), rng.random() < 0.5
        changed_keys, changed = list(cell_keys), list(values)
        target = changed_keys if at_key else changed
        target[place] = mutated(rng, target[place])
        try:
            row_keys, arrays = encoder.decode(BinaryColumn.from_pylist(changed_keys), BinaryColumn.from_pylist(changed))
        except EncodingError:
            continue
        assert all(len(array) == len(row_keys) for array in arrays)
        for array in arrays:
            array.validate(full=True)


def test_wrong_columns_and_ids_are_refused():
    with pytest.raises(ValueError, match="ids"):
        CellEncoder([DataType.INT], [1, 2])
    with pytest.raises(ValueError, match="2 columns"):
        CellEncoder([DataType.INT]).encode(BinaryColumn.from_pylist([b""]), [Column.from_pylist([1], DataType.INT)] * 2)
    with pytest.raises(EncodingError, match="row 0"):
        CellEncoder([]).decode(BinaryColumn.from_pylist([b"k\0\0\0\1"]), BinaryColumn.from_pylist([b""]))
