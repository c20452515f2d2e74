"""ValueNumbers: the values of one type by number, for arrays and hash tables whose entries name a value in 31 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from relational.chunk.column import Column
from relational.hash.key_ids import KeyInterner
from relational.types import DataType

LARGEST = 2**31 - 1


class ValueNumbers:
    """Integers from 0 to LARGEST, as keys of other tables usually are, are their own numbers, while no other value of
    their column has come: to look a value up in a large dictionary costs as much as to aggregate it. Others get the
    numbers 0, 1, 2 … of a dictionary."""

    def __init__(self, data_type: DataType, *, has_dictionary: bool = False) -> None:
        """Integers are their own numbers unless `has_dictionary`."""
        self._type = data_type
        self.dictionary = None if data_type.is_integer and not has_dictionary else KeyInterner([data_type])
        """None: values are their own numbers."""

    @property
    def size_bytes(self) -> int:
        """Memory used."""
        return 0 if self.dictionary is None else self.dictionary.size_bytes

    @property
    def column_bytes(self) -> int:
        """The bytes of the values themselves."""
        return 0 if self.dictionary is None else self.dictionary.column_bytes

    def find(self, column: Column, counted: np.ndarray) -> np.ndarray | None:
        """The number of each row's value, int32[rows], -1 where `counted` (uint8[rows]) is 0; None if one of them is
        not its own number, and there is no dictionary. REQUIRES that no counted row is NULL."""
        if self.dictionary is not None:
            return self.dictionary.find([column], counted)
        array = column.array.fill_null(0) if column.null_count else column.array
        words = array.to_numpy(zero_copy_only=False)
        is_counted = counted.view(bool)
        if len(words) and not 0 <= words.min() <= words.max() <= LARGEST:
            words = np.where(is_counted, words, 0)
            if not 0 <= words.min() <= words.max() <= LARGEST:
                return None
        return np.where(is_counted, words.astype(np.int32, copy=False), np.int32(-1))

    def values(self, numbers: np.ndarray) -> Column:
        """The values of numbers that were found."""
        if self.dictionary is not None:
            return self.dictionary.keys(numbers)[0]
        return Column(pa.array(numbers).cast(self._type.arrow), self._type)
