"""Arrow IPC files as a source: every row once from any offset, columns by need, and errors that name the file."""

import random

import pyarrow as pa
import pytest

from relational.chunk import StreamChunk
from relational.types import Schema
from stream.connector.arrow_files import ArrowFilesConnector
from stream.connector.base import validated
from stream.errors import ConnectorError, InvalidOffset, MalformedRows

SCHEMA = Schema.of(id="bigint", name="varchar", at="timestamp")


def table(rows, first=0):
    ids = range(first, first + rows)
    return pa.table({"at": pa.array([each * 1_000 for each in ids], pa.timestamp("us")),
                     "name": pa.array([None if each % 7 == 0 else f"name {each}" for each in ids]),
                     "id": pa.array(ids, pa.int64())})


def write(path, rows, batch_rows=100, **options):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=options.get("ipc")) as writer:
        writer.write_table(rows, max_chunksize=batch_rows)
        if options.get("empty_batch"):
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=rows.schema))


def connector(path, schema=SCHEMA):
    return ArrowFilesConnector({"path": str(path)}, schema)


def values(reader, max_rows=64):
    out = []
    while (chunk := reader.next_chunk(max_rows)) is not None:
        assert isinstance(chunk, StreamChunk) and 0 < chunk.capacity <= max_rows
        out += zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
    return out


def test_the_files_of_a_directory_are_splits_by_name(tmp_path):
    for name in ("b.arrow", "a.ipc", "c.feather", "notes.txt", ".arrow"):
        write(tmp_path / name, table(1))
    (tmp_path / "d.arrow").mkdir()
    assert connector(tmp_path).enumerator().list_splits() == ["a.ipc", "b.arrow", "c.feather"]
    assert connector(tmp_path / "notes.txt").enumerator().list_splits() == ["notes.txt"]


@pytest.mark.parametrize("ipc", [None, pa.ipc.IpcWriteOptions(compression="zstd")], ids=["plain", "zstd"])
def test_every_row_is_read_once_from_any_offset(tmp_path, ipc):
    rng = random.Random(3)
    rows = table(1_234)
    write(tmp_path / "a.arrow", rows, 100, ipc=ipc, empty_batch=True)
    expected = [(row["id"], row["name"], row["at"]) for row in rows.to_pylist()]
    for _ in range(20):
        reader = connector(tmp_path).open_split("a.arrow", (0, 1, 2))
        seen, wanted = [], rng.randint(0, 1_300)
        while len(seen) < wanted and (chunk := reader.next_chunk(rng.randint(1, 130))) is not None:
            seen += zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
        offset = reader.offset
        reader.close()
        again = connector(tmp_path).open_split("a.arrow", (0, 1, 2))
        again.seek(offset)
        assert seen + values(again, rng.randint(1, 500)) == expected
        assert again.is_finished and again.next_chunk(10) is None
        again.close()


def test_only_the_needed_columns_are_read_in_the_order_of_the_request(tmp_path):
    write(tmp_path / "a.arrow", table(5))
    assert values(connector(tmp_path).open_split("a.arrow", (1, 0))) == [
        (row["name"], row["id"]) for row in table(5).to_pylist()]
    narrow = pa.table({"id": pa.array([1, 2], pa.int64())})
    write(tmp_path / "b.arrow", narrow)
    assert values(connector(tmp_path).open_split("b.arrow", (0,))) == [(1,), (2,)]
    with pytest.raises(ConnectorError, match=r"b\.arrow has no column 'name'; it has id"):
        connector(tmp_path).open_split("b.arrow", (0, 1))


def test_other_types_are_cast_and_what_cannot_be_cast_is_refused(tmp_path):
    other = pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["a", "b"]).dictionary_encode(),
                      "at": pa.array([1, 2], pa.timestamp("ms"))})
    write(tmp_path / "a.arrow", other)
    rows = values(connector(tmp_path).open_split("a.arrow", (0, 1, 2)))
    assert [row[:2] for row in rows] == [(1, "a"), (2, "b")] and rows[1][2].microsecond == 2_000
    write(tmp_path / "b.arrow", pa.table({"id": ["one"]}))
    with pytest.raises(ConnectorError, match=r"column 'id' of .*b\.arrow is string, not BIGINT"):
        values(connector(tmp_path).open_split("b.arrow", (0,)))


def test_damage_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "a.arrow"
    write(path, table(1_000), ipc=pa.ipc.IpcWriteOptions(compression="zstd"))
    data = bytearray(path.read_bytes())
    (tmp_path / "short.arrow").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.arrow").write_bytes(b"")
    for name in ("short.arrow", "empty.arrow", "absent.arrow"):
        with pytest.raises(ConnectorError, match=name):
            values(connector(tmp_path).open_split(name, (0, 1, 2)))
    outcomes = set()
    rng = random.Random(5)
    for _ in range(60):
        torn = bytearray(data)
        for _ in range(40):
            torn[rng.randrange(64, len(torn) - 600)] ^= rng.randrange(1, 256)
        (tmp_path / "torn.arrow").write_bytes(torn)
        try:
            reader = connector(tmp_path).open_split("torn.arrow", (0, 1, 2))
            while (chunk := reader.next_chunk(64)) is not None:
                list(validated(chunk, SCHEMA, "torn.arrow").rows())
            outcomes.add("read")
        except (ConnectorError, MalformedRows) as error:
            assert "torn.arrow" in str(error)
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
