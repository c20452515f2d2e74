"""Arrow IPC files as sources: local ones mapped into memory, without a copy. A group is a record batch; compressed ones
are decompressed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from stream.connector.files import GroupedConnector, GroupedFile


class ArrowFile(GroupedFile):
    """A mapped file whose batches refer to it is read as a whole, which copies nothing. Of any other only the columns
    that are wanted are read: pyarrow selects them when a file is opened, and copies them."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._file = pa.ipc.open_file(source)
        self._names: tuple[str, ...] = tuple(self._file.schema.names)
        self._selected = self._file

    @property
    def fields(self) -> pa.Schema:
        return self._file.schema

    @property
    def groups(self) -> int:
        return int(self._file.num_record_batches)

    def read(self, group: int, names: Sequence[str]) -> tuple[int, Iterator[pa.RecordBatch]]:
        if not self._is_shared and tuple(names) != self._names:
            numbers = [self.fields.get_field_index(name) for name in names]
            options = pa.ipc.IpcReadOptions(included_fields=numbers)
            self._selected, self._names = pa.ipc.open_file(self._source, options=options), tuple(names)
        batch = self._selected.get_batch(group)
        return batch.num_rows, iter([batch.select(list(names))])

    @cached_property
    def _is_shared(self) -> bool:
        """Whether the first batch refers to the memory of a mapped file: it is not compressed."""
        if not isinstance(self._source, pa.MemoryMappedFile) or not self.groups:
            return False
        self._source.seek(0)
        whole = self._source.read_buffer()
        columns = self._file.get_batch(0).columns
        found = [each for column in columns for each in column.buffers() if each is not None and each.size]
        return all(whole.address <= each.address < whole.address + whole.size for each in found)


class ArrowFilesConnector(GroupedConnector):
    """`WITH (connector = 'arrow', path = …)`."""

    name = "arrow"
    suffixes = (".arrow", ".ipc", ".feather")
    is_mapped = True

    def open_file(self, source: pa.NativeFile) -> GroupedFile:
        return ArrowFile(source)
