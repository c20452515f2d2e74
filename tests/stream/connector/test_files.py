"""Arrow and Parquet files as sources, of directories and of buckets: the suite of connectors, types, damage, errors
that name the file, row groups that a filter excludes, and where a job begins."""

import os
import pathlib
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hummock.object_store import open_object_store
from relational.expr.comparisons import Comparison, Relation
from relational.types import Schema
from stream.connector.arrow_files import ArrowFilesConnector
from stream.connector.base import Start, StartKind, validated
from stream.connector.csv_files import CsvFilesConnector
from stream.connector.ndjson_files import NdjsonFilesConnector
from stream.connector.parquet_files import ParquetFile, ParquetFilesConnector
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

    @pytest.fixture
    def add_split(self, tmp_path, connector):
        def add():
            write(tmp_path / f"0a.{self.suffix}", table(50), self.batch_rows, **self.options)
            return f"0a.{self.suffix}"

        return add

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
                           ({"path": "ftp://host/x"}, "one of memory://, file://, s3://"),
                           ({"path": "s3://key@bucket/x"}, "without user and password"),
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


def upload(url, name, data):
    store = open_object_store(url)
    store.put(name, data)
    store.close()


@pytest.mark.s3
def test_files_in_a_bucket(tmp_path, s3_url, suffix):
    for number, rows in enumerate((250, 1)):
        path = tmp_path / f"{number}.{suffix}"
        write(path, table(rows, first=number * 5_000), 100)
        upload(s3_url, path.name, path.read_bytes())
    for hidden in (f"inside/2.{suffix}", f".3.{suffix}", "4.txt"):
        upload(s3_url, hidden, b"not listed")
    opened = FORMATS[suffix]({"path": s3_url}, SCHEMA)
    enumerator = opened.enumerator()
    assert enumerator.list_splits() == [f"0.{suffix}", f"1.{suffix}"]
    expected = [(row["id"], row["name"]) for row in table(250).to_pylist()]
    reader = opened.open_split(f"0.{suffix}", (0, 1))
    assert len(reader.next_chunk(130)) == 100 and len(reader.next_chunk(30)) == 30
    offset = reader.offset
    assert values(reader) == expected[130:]
    reader.close()
    reader.seek(offset)
    assert values(reader) == expected[130:] and reader.is_finished
    upload(s3_url, f"0a.{suffix}", (tmp_path / f"1.{suffix}").read_bytes())
    assert enumerator.list_splits() == [f"0.{suffix}", f"0a.{suffix}", f"1.{suffix}"]
    where, _, query = s3_url.partition("?")
    one = FORMATS[suffix]({"path": f"{where}/1.{suffix}?{query}"}, SCHEMA)
    assert one.enumerator().list_splits() == [f"1.{suffix}"]
    assert values(one.open_split(f"1.{suffix}", (0,))) == [(5_000,)]
    with pytest.raises(ConnectorError, match=rf"prefix-.*/absent\.{suffix} cannot be read"):
        opened.open_split(f"absent.{suffix}", (0,))
    past = Start(StartKind.MOMENT, datetime(2000, 1, 1, tzinfo=UTC))
    reader.seek("0:0")
    reader.begin_at(past)
    assert not reader.is_finished


@pytest.mark.s3
def test_texts_in_a_bucket(s3_url):
    upload(s3_url, "a.csv", b"id,name\n" + b"".join(b"%d,n%d\n" % (each, each) for each in range(500)))
    upload(s3_url, "a.ndjson", b"".join(b'{"id": %d, "name": "n%d"}\n' % (each, each) for each in range(500)))
    for kind, name in ((CsvFilesConnector, "a.csv"), (NdjsonFilesConnector, "a.ndjson")):
        opened = kind({"path": s3_url}, SCHEMA.project((0, 1)))
        assert opened.enumerator().list_splits() == [name]
        assert values(opened.open_split(name, (0, 1))) == [(each, f"n{each}") for each in range(500)]


NUMBERS = Schema.of(i="bigint", s="varchar", n="numeric(10,2)", at="timestamp", x="double", b="boolean")


def groups_read(path, terms, monkeypatch, schema=NUMBERS):
    """The groups of a file that a reader with these filters reads."""
    read, real = [], ParquetFile.read
    monkeypatch.setattr(ParquetFile, "read", lambda file, group, names: read.append(group) or real(file, group, names))
    filters = [Comparison(schema.index(name), relation, value, schema.types[schema.index(name)])
               for name, relation, value in terms]
    reader = ParquetFilesConnector({"path": str(path)}, schema).open_split(path.name, (0,), filters)
    rows = values(reader)
    assert reader.is_finished and len(rows) == 10 * len(read)
    monkeypatch.undo()
    return read


def test_row_groups_that_the_filter_excludes_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    ids = range(50)
    nan = [float("nan") if each == 5 else float(each) for each in ids]
    rows = pa.table({"i": pa.array(ids, pa.int32()), "s": [f"{each:02}" for each in ids],
                     "n": pa.array([Decimal(each) / 4 for each in ids], pa.decimal128(12, 4)),
                     "at": pa.array([each * 10**9 for each in ids], pa.timestamp("ns")), "x": nan,
                     "b": [each < 10 for each in ids]})
    pq.write_table(rows, path, row_group_size=10)
    second = datetime(1970, 1, 1, second=35)
    for terms, expected in (
        ([], [0, 1, 2, 3, 4]), ([("i", Relation.LESS, 20)], [0, 1]), ([("i", Relation.LESS_EQUAL, 20)], [0, 1, 2]),
        ([("i", Relation.EQUAL, 33)], [3]), ([("i", Relation.EQUAL, 99)], []), ([("i", Relation.GREATER, 39)], [4]),
        ([("i", Relation.GREATER_EQUAL, 39)], [3, 4]), ([("s", Relation.EQUAL, "12")], [1]),
        ([("s", Relation.LESS, "2")], [0, 1]), ([("n", Relation.GREATER, Decimal("10"))], [4]),
        ([("at", Relation.EQUAL, second)], [3]), ([("i", Relation.GREATER, 15), ("i", Relation.LESS, 25)], [1, 2]),
        ([("x", Relation.LESS, 10.0)], [0]), ([("x", Relation.GREATER, 45.0)], [0, 1, 2, 3, 4]),
        ([("x", Relation.EQUAL, 20.0)], [2]), ([("b", Relation.EQUAL, True)], [0]),
    ):
        assert groups_read(path, terms, monkeypatch) == expected, terms


def test_groups_of_nulls_and_files_without_statistics(tmp_path, monkeypatch):
    schema = Schema.of(i="bigint", j="bigint")
    path = tmp_path / "a.parquet"
    rows = pa.table({"i": pa.array(range(30), pa.int64()), "j": pa.array([None] * 10 + [1] * 20, pa.int64())})
    pq.write_table(rows, path, row_group_size=10)
    assert groups_read(path, [("j", Relation.EQUAL, 1)], monkeypatch, schema) == [1, 2]
    pq.write_table(rows, path, row_group_size=10, write_statistics=False)
    assert groups_read(path, [("j", Relation.EQUAL, 5)], monkeypatch, schema) == [0, 1, 2]
    with pytest.raises(ConnectorError, match="no column 'k'"):
        wide = Schema.of(i="bigint", k="bigint")
        term = Comparison(1, Relation.EQUAL, 1, wide.types[1])
        ParquetFilesConnector({"path": str(path)}, wide).open_split("a.parquet", (0,), [term])


def test_a_position_in_a_group_that_is_excluded_is_read_on(tmp_path):
    write(tmp_path / "a.parquet", table(250))
    opened = connector(tmp_path, "parquet")
    reader = opened.open_split("a.parquet", (0,), [Comparison(0, Relation.GREATER, 240, SCHEMA.types[0])])
    reader.seek("1:40")
    assert values(reader) == [(each,) for each in (*range(140, 250),)]
    reader.seek("1:0")
    assert reader.offset == "1:0" and values(reader) == [(each,) for each in range(200, 250)]


def test_a_job_begins_with_the_files_that_are_written_after_a_moment(tmp_path, suffix):
    for number in range(3):
        path = tmp_path / f"{number}.{suffix}"
        write(path, table(10))
        os.utime(path, (1_000_000 * number, 1_000_000 * number))
    moment = Start(StartKind.MOMENT, datetime.fromtimestamp(1_000_000, UTC))
    for number in range(3):
        reader = connector(tmp_path, suffix).open_split(f"{number}.{suffix}", (0,))
        reader.begin_at(moment)
        assert len(values(reader)) == (10 if number else 0)


@pytest.mark.parametrize("wide", [pa.decimal128, pa.decimal256])
def test_decimals_of_a_file_become_the_nearest_floats(tmp_path, suffix, wide):
    decimals = [Decimal(each * 7_919).scaleb(-6) for each in range(500)]
    column = pa.array(decimals, wide(12, 6))
    write(tmp_path / f"a.{suffix}", pa.table({"x": column, "y": column}))
    opened = connector(tmp_path, suffix, Schema.of(x="double", y="real"))
    found = values(opened.open_split(f"a.{suffix}", (0, 1), []))
    assert found == [(float(each), pa.scalar(str(each)).cast(pa.float32()).as_py()) for each in decimals]
