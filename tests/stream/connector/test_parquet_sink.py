"""Parquet files as a sink: the suite of targets, names of files, files of others, buckets."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hummock.object_store import open_object_store
from relational.types import Schema
from stream.connector import parquet_sink
from stream.connector.parquet_files import ParquetFilesConnector
from stream.connector.parquet_sink import ParquetTarget
from stream.connector.sink import SinkIdentity
from stream.errors import ConnectorError
from tests.stream.connector.test_csv_files import values
from tests.support.drivers.seeds import run_seed
from tests.support.suites.sink_suite import SCHEMA, SinkSuite, changes, changes_in, cut

IDENTITY = SinkIdentity("my sink", 7)


def target(path, identity=IDENTITY, **options):
    return ParquetTarget({"path": str(path), **options}, identity)


def files(path):
    return sorted(each for each in path.iterdir() if each.suffix == ".parquet")


def rows_in(path):
    return [change for file in files(path) for change in changes_in(pq.read_table(file))]


class TestParquetSink(SinkSuite):
    @pytest.fixture
    def opened(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parquet_sink, "GROUP_ROWS", 64)
        return lambda: target(tmp_path)

    @pytest.fixture
    def received(self, tmp_path):
        return lambda: rows_in(tmp_path)


def delivered(path, epochs=(1, 2), **options):
    rng, found = random.Random(run_seed()), []
    writer = target(path, **options)
    for epoch in epochs:
        table = changes(rng, 100)
        writer.deliver(epoch << 16, cut(table, rng))
        found += changes_in(table)
    writer.close()
    return found


def test_files_are_named_by_sink_and_epoch_and_are_a_source(tmp_path):
    expected = delivered(tmp_path / "new" / "directory", (2, 1, 10**11))
    names = [file.name for file in files(tmp_path / "new" / "directory")]
    assert names == [f"my%20sink-{epoch << 16:020}.parquet" for epoch in (1, 2, 10**11)]
    source = ParquetFilesConnector({"path": str(tmp_path / "new" / "directory")}, SCHEMA)
    assert source.enumerator().list_splits() == names
    read = [row for name in names for row in values(source.open_split(name, range(len(SCHEMA))))]
    assert sorted(map(str, read)) == sorted(str(row) for _, row in expected)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "none"])
def test_prefix_and_compression(tmp_path, compression):
    expected = delivered(tmp_path, (1,), prefix="part", compression=compression)
    (file,) = files(tmp_path)
    assert file.name == f"part-{1 << 16:020}.parquet" and rows_in(tmp_path) == expected
    metadata = pq.read_metadata(file)
    known = metadata.row_group(0).column(0).compression
    assert known == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_large_batches_become_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_sink, "GROUP_BYTES", 2_000)
    delivered(tmp_path, (1,))
    assert pq.read_metadata(files(tmp_path)[0]).num_row_groups > 1


def test_the_file_of_another_sink_is_not_taken_for_its_own(tmp_path):
    delivered(tmp_path, (1,))
    other = target(tmp_path, SinkIdentity("my sink", 8))
    with pytest.raises(ConnectorError, match="was not written by this sink"):
        other.deliver(1 << 16, cut(changes(random.Random(1), 5), random.Random(1)))
    files(tmp_path)[0].write_bytes(b"something else")
    with pytest.raises(ConnectorError, match="is no Parquet file"):
        target(tmp_path).deliver(1 << 16, cut(changes(random.Random(1), 5), random.Random(1)))


def test_a_file_that_appears_meanwhile_is_found(tmp_path):
    rng = random.Random(run_seed())
    table = changes(rng, 100)

    def meanwhile():
        batches = list(cut(table, rng))
        yield batches[0]
        target(tmp_path).deliver(1 << 16, cut(table, rng))
        yield from batches[1:]

    target(tmp_path).deliver(1 << 16, meanwhile())
    assert rows_in(tmp_path) == changes_in(table)


@pytest.mark.parametrize(("options", "fault"), [
    ({"path": "relative"}, "is not absolute"), ({}, "option path is missing"),
    ({"path": "/x", "compression": "gzip"}, "zstd or snappy"), ({"path": "/x", "rows": "1"}, "no option 'rows'"),
])
def test_invalid_options_are_refused(options, fault):
    with pytest.raises(ConnectorError, match=fault):
        ParquetTarget(options, IDENTITY)


def test_intervals_are_refused():
    with pytest.raises(ConnectorError, match="column 'i': Parquet has no values of INTERVAL"):
        ParquetTarget.check_schema(Schema.of(i="interval"))
    ParquetTarget.check_schema(SCHEMA)


@pytest.mark.s3
def test_files_in_a_bucket(s3_url):
    rng = random.Random(run_seed())
    table = changes(rng, 200)
    for _ in range(2):
        writer = ParquetTarget({"path": s3_url}, IDENTITY)
        writer.deliver(1 << 16, cut(table, rng))
        writer.close()
    store = open_object_store(s3_url)
    (found,) = [each.path for each in store.list()]
    assert changes_in(pq.read_table(pa.BufferReader(store.get(found)))) == changes_in(table)
    store.close()
