"""StoredForm: columns of any type as columns that records can store.

A STRUCT or a LIST is stored as its value encoding. One that is part of the key of a row is stored a second time as its
key encoding, which is equal exactly if SQL considers the values equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from relational.chunk.column import Column
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import DataType


class StoredForm:
    """`types` of the stored columns, the first of which correspond to the given ones; `name`: indices of those that
    identify a row.
    """

    def __init__(self, types: Sequence[DataType], name: Sequence[int]):
        nested = [at for at, data_type in enumerate(types) if data_type.is_nested]
        named = [at for at in name if at in nested]
        self._values = {at: ValueEncoder([types[at]]) for at in nested}
        self._keys = {at: KeyEncoder([types[at]]) for at in named}
        stored = [DataType.BYTEA if at in nested else data_type for at, data_type in enumerate(types)]
        self.types = (*stored, *(DataType.BYTEA for _ in named))
        self.name = tuple(len(stored) + named.index(at) if at in named else at for at in name)

    def store(self, columns: Sequence[Column]) -> list[Column]:
        """The stored columns of the given ones. EncodingError for a value that has no encoding."""
        if not self._values:
            return list(columns)
        encoders = [*((at, self._values.get(at)) for at in range(len(columns))), *self._keys.items()]
        return [
            columns[at] if encoder is None else Column(encoder.encode([columns[at]]).to_arrow(), DataType.BYTEA)
            for at, encoder in encoders
        ]

    def restore(self, arrays: Sequence[pa.Array], columns: Sequence[int]) -> list[pa.Array]:
        """The arrays of the given columns at `columns`, from their stored ones; NULL stays NULL."""
        return [
            self._values[at].decode(array, absent="null")[0] if at in self._values else array
            for array, at in zip(arrays, columns, strict=True)
        ]
