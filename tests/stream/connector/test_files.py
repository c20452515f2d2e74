"""Arrow and Parquet files as sources: the suite of connectors, types, damage, and errors that name the file."""

import pathlib
import random
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relational.types import Schema
from stream.connector.arrow_files import ArrowFilesConnector
from stream.connector.base import validated
from stream.connector.parquet_files import ParquetFilesConnector
from stream.errors import ConnectorError, InvalidOffset, MalformedRows
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar", at="timestamp")


def table(rows, first=0):
    ids = range(first, first + rows)
    return pa.table({"at": pa.array([each * 1_000 for each in ids], pa.timestamp("us")),
                     "name": pa.array([None if each % 7 == 0 else f"name {each}" for each in ids]),
                     "id": pa.array(ids, pa.int64())})


def write(path, rows, batch_rows=100, *, compression=None, empty_batch=False):
    """A file of the format of its suffix, of groups of `batch_rows`."""
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=batch_rows, compression=compression or "none",
                       write_page_checksum=True)
        return
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=batch_rows)
        if empty_batch:
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=rows.schema))


FORMATS = {"arrow": ArrowFilesConnector, "parquet": ParquetFilesConnector}


@pytest.fixture(params=FORMATS)
def suffix(request):
    return request.param


def connector(path, suffix="arrow", schema=SCHEMA):
    return FORMATS[suffix]({"path": str(path)}, schema)


def values(reader, max_rows=64):
    out = []
    while (chunk := reader.next_chunk(max_rows)) is not None:
        out += zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
    return out


class _Files(ConnectorSuite):
    suffix, batch_rows, options = "arrow", 100, {}

    @pytest.fixture
    def schema(self):
        return SCHEMA

    @pytest.fixture
    def connector(self, tmp_path):
        for number, rows in enumerate((1_234, 100, 1, 0)):
            path = tmp_path / f"{number}.{self.suffix}"
            write(path, table(rows, first=number * 5_000), self.batch_rows, **self.options)
        return lambda: connector(tmp_path, self.suffix)

    def test_all_rows_are_there(self, connector):
        opened = connector()
        splits = opened.enumerator().list_splits()
        rows = [row for split in splits for row in values(opened.open_split(split, (0, 1, 2)))]
        expected = pa.concat_tables([table(1_234), table(100, 5_000), table(1, 10_000)])
        assert rows == [(row["id"], row["name"], row["at"]) for row in expected.to_pylist()]


class TestArrow(_Files):
    pass


class TestCompressedArrow(_Files):
    options: ClassVar = {"compression": "zstd", "empty_batch": True}


class TestParquet(_Files):
    suffix = "parquet"


class TestParquetOfOneRowGroup(_Files):
    suffix, batch_rows, options = "parquet", 1_000_000, {"compression": "snappy"}


def test_the_files_of_a_directory_are_splits_by_name(tmp_path):
    for name in ("b.arrow", "a.ipc", "c.feather", "notes.txt", ".arrow", "x.parquet"):
        write(tmp_path / name, table(1))
    (tmp_path / "d.arrow").mkdir()
    assert connector(tmp_path).enumerator().list_splits() == ["a.ipc", "b.arrow", "c.feather"]
    assert connector(tmp_path, "parquet").enumerator().list_splits() == ["x.parquet"]
    assert connector(tmp_path / "notes.txt").enumerator().list_splits() == ["notes.txt"]


def test_columns_that_nobody_names_may_be_missing(tmp_path, suffix):
    write(tmp_path / f"b.{suffix}", pa.table({"id": pa.array([1, 2], pa.int64())}))
    assert values(connector(tmp_path, suffix).open_split(f"b.{suffix}", (0,))) == [(1,), (2,)]
    with pytest.raises(ConnectorError, match=rf"b\.{suffix} has no column 'name'; it has id"):
        connector(tmp_path, suffix).open_split(f"b.{suffix}", (0, 1))


def test_other_types_are_cast_and_what_cannot_be_cast_is_refused(tmp_path, suffix):
    other = pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["a", "b"]).dictionary_encode(),
                      "at": pa.array([1, 2], pa.timestamp("ms"))})
    write(tmp_path / f"a.{suffix}", other)
    rows = values(connector(tmp_path, suffix).open_split(f"a.{suffix}", (0, 1, 2)))
    assert [row[:2] for row in rows] == [(1, "a"), (2, "b")] and rows[1][2].microsecond == 2_000
    write(tmp_path / f"b.{suffix}", pa.table({"id": ["one"]}))
    with pytest.raises(ConnectorError, match=rf"column 'id' of .*b\.{suffix} is string, not BIGINT"):
        values(connector(tmp_path, suffix).open_split(f"b.{suffix}", (0,)))


def test_damage_is_an_error_that_names_the_file(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    write(path, table(1_000), compression="zstd")
    data = bytearray(path.read_bytes())
    (tmp_path / f"short.{suffix}").write_bytes(data[: len(data) // 2])
    (tmp_path / f"empty.{suffix}").write_bytes(b"")
    for name in (f"short.{suffix}", f"empty.{suffix}", f"absent.{suffix}"):
        with pytest.raises(ConnectorError, match=name):
            values(connector(tmp_path, suffix).open_split(name, (0, 1, 2)))
    outcomes = set()
    rng = random.Random(5)
    for _ in range(60):
        torn = bytearray(data)
        for _ in range(40):
            torn[rng.randrange(64, len(torn) - 600)] ^= rng.randrange(1, 256)
        (tmp_path / f"torn.{suffix}").write_bytes(torn)
        try:
            reader = connector(tmp_path, suffix).open_split(f"torn.{suffix}", (0, 1, 2))
            while (chunk := reader.next_chunk(64)) is not None:
                list(validated(chunk, SCHEMA, f"torn.{suffix}").rows())
            outcomes.add("read")
        except (ConnectorError, MalformedRows) as error:
            assert f"torn.{suffix}" in str(error)
            outcomes.add(type(error).__name__)
    assert outcomes >= {"ConnectorError"}, outcomes


def test_invalid_options_offsets_and_splits_are_refused(tmp_path):
    write(tmp_path / "a.arrow", table(250))
    for options, fault in (({}, "path is missing"), ({"path": "relative"}, "not absolute"),
                           ({"path": str(tmp_path), "glob": "*"}, "no option 'glob'")):
        with pytest.raises(ConnectorError, match=fault):
            ArrowFilesConnector(options, SCHEMA)
    with pytest.raises(ConnectorError, match="there is no file or directory"):
        connector(tmp_path / "absent").enumerator().list_splits()
    with pytest.raises(ConnectorError, match="is no file name"):
        connector(tmp_path).open_split("../a.arrow", (0,))
    for offset in ("", "1", "x:1", "4:0", "0:100", "2:50", "-1:0"):
        with pytest.raises(InvalidOffset, match=r"split 'a\.arrow'"):
            connector(tmp_path).open_split("a.arrow", (0,)).seek(offset)


def open_descriptors():
    return sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())


def test_files_are_open_only_while_they_are_read(tmp_path, suffix):
    for number in range(50):
        write(tmp_path / f"{number}.{suffix}", table(150), 100)
    opened = connector(tmp_path, suffix)
    descriptors = open_descriptors()
    readers = [opened.open_split(split, (0, 1)) for split in opened.enumerator().list_splits()]
    assert open_descriptors() <= descriptors + 1
    for reader in readers:
        assert len(values(reader)) == 150
    again = [opened.open_split(split, (0, 1)) for split in opened.enumerator().list_splits()]
    for reader in again:
        reader.seek("2:0")
        assert reader.is_finished and reader.next_chunk(10) is None
    assert open_descriptors() <= descriptors + 1
