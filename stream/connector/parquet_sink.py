"""Changes as Parquet files: `CREATE SINK … WITH (connector = 'parquet', path = …)`.

    path         an absolute path of a directory, or a URL of an object store; it is created if it does not exist
    prefix       of the names of the files; by default the name of the sink
    compression  zstd (the default), snappy, lz4 or none

Each batch of committed changes is one file, `<prefix>-<epoch, 20 digits>.parquet`: the columns of the query, and `_op`
as in `arrow_sink`. A file appears whole, after its epoch was committed, under a name that follows from the epoch, and
is never replaced [R36]. A repeated delivery finds it, and finds by its metadata that it is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from hummock.errors import ObjectExists, ObjectNotFound
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore, ObjectWriter, check_path
from relational.types import Schema, TypeKind
from stream.connector.directory import ObjectFile, store_url
from stream.connector.object_upload import ObjectUpload
from stream.connector.option_values import OptionValues
from stream.connector.sink import SinkIdentity, SinkTarget
from stream.errors import ConnectorError

NAME = "parquet"
GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20
"""A row group ends beyond either."""
EPOCH_KEY, SINK_KEY = b"hummock.epoch", b"hummock.sink"


class ParquetTarget(SinkTarget):
    """The store is opened by the first delivery."""

    def __init__(self, options: Mapping[str, str], identity: SinkIdentity) -> None:
        values = OptionValues(NAME, options, ("path", "prefix", "compression"))
        self._url = store_url(NAME, values.text("path"))
        self._prefix = quote(values.text("prefix", identity.name), safe="")
        self._compression = values.choice("compression", "zstd", ("zstd", "snappy", "lz4", "none"))
        self._identity = f"{identity.name} {identity.job_id}".encode()
        self._store: ObjectStore | None = None
        check_path(self._file_name(0))

    @classmethod
    def check_schema(cls, schema: Schema) -> None:
        for field in schema:
            if field.data_type.contains(TypeKind.INTERVAL):
                raise ConnectorError(NAME, f"column {field.name!r}: Parquet has no values of {field.data_type}")

    def deliver(self, epoch: int, changes: Iterator[pa.RecordBatch]) -> None:
        if self._store is None:
            self._store = open_object_store(self._url)
        name = self._file_name(epoch)
        if self._is_published(self._store, name, epoch):
            return
        first = next(changes)
        try:
            with self._store.create(name) as writer:
                self._write(writer, epoch, first, changes)
        except ObjectExists:
            if not self._is_published(self._store, name, epoch):
                raise

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _file_name(self, epoch: int) -> str:
        return f"{self._prefix}-{epoch:020}.parquet"

    def _is_published(self, store: ObjectStore, name: str, epoch: int) -> bool:
        """Whether an earlier delivery wrote the file. ConnectorError if another sink did."""
        try:
            file = ObjectFile(store, name)
        except ObjectNotFound:
            return False
        try:
            metadata = pq.read_metadata(pa.PythonFile(file, mode="r")).metadata or {}
        except pa.ArrowException as error:
            raise ConnectorError(NAME, f"{name} exists and is no Parquet file: {error}") from error
        if (metadata.get(SINK_KEY), metadata.get(EPOCH_KEY)) != (self._identity, str(epoch).encode()):
            raise ConnectorError(NAME, f"{name} exists, and was not written by this sink")
        return True

    def _write(
        self, writer: ObjectWriter, epoch: int, first: pa.RecordBatch, changes: Iterator[pa.RecordBatch]
    ) -> None:
        metadata = {EPOCH_KEY: str(epoch).encode(), SINK_KEY: self._identity}
        schema = first.schema.with_metadata({**(first.schema.metadata or {}), **metadata})
        group, rows, size = [first], first.num_rows, first.nbytes
        target = pa.PythonFile(ObjectUpload(writer), mode="w")
        with pq.ParquetWriter(target, schema, compression=self._compression, write_page_checksum=True) as file:
            for batch in changes:
                if rows + batch.num_rows > GROUP_ROWS or size + batch.nbytes > GROUP_BYTES:
                    file.write_table(pa.Table.from_batches(group, schema))
                    group, rows, size = [], 0, 0
                group.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            file.write_table(pa.Table.from_batches(group, schema))
