"""Parquet files as sources. A group is a row group, decoded in batches of bounded size; page checksums are verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stream.connector.files import FileConnector, GroupedFile

BATCH_ROWS = 65_536


class ParquetFile(GroupedFile):
    """REQUIRES that names of columns contain no dots, which separate the fields of a struct."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(str(path), page_checksum_verification=True)

    @property
    def fields(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def groups(self) -> int:
        return int(self._file.num_row_groups)

    def read(self, group: int, names: Sequence[str]) -> tuple[int, Iterator[pa.RecordBatch]]:
        rows = self._file.metadata.row_group(group).num_rows
        return rows, self._file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False)

    def close(self) -> None:
        self._file.close()


class ParquetFilesConnector(FileConnector):
    """`WITH (connector = 'parquet', path = …)`."""

    name = "parquet"
    suffixes = (".parquet",)

    def open_file(self, path: Path) -> GroupedFile:
        return ParquetFile(path)
