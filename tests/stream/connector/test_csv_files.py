"""CSV files as sources: the suite of connectors, PostgreSQL's COPY text, quoting, headers, malformed records."""

import csv
import gzip
import io
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pytest

from relational.types import Schema
from stream.connector import text_files
from stream.connector.csv_files import CsvFilesConnector
from stream.connector.decompressed import CODECS, codec_of_name
from stream.errors import ConnectorError, MalformedRows
from tests.support.drivers.seeds import run_seed
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar", price="numeric(10,2)", at="timestamp")


def connector(path, schema=SCHEMA, **options):
    return CsvFilesConnector({"path": str(path), **options}, schema)


def rows(count, first=0):
    names = (None, "", "a", 'q"uote', "two\nlines", "comma, too", "é" * 3)
    return [(number, names[number % 7], Decimal(number) / 4, datetime(2024, 1, 1, number % 24))
            for number in range(first, first + count)]


def text_of(values, *, header=("id", "name", "price", "at"), delimiter=",", end="\n", null=""):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    if header:
        writer.writerow(header)
    for row in values:
        cells = [null if each is None else '""' if each == "" and not null else each for each in row]
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=delimiter, lineterminator=end).writerow(cells)
        out.write(buffer.getvalue().replace('""""""', '""'))
    return out.getvalue()


def values(reader, max_rows=100):
    out = []
    while not reader.is_finished:
        chunk = reader.next_chunk(max_rows)
        if chunk is not None:
            out += zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
    return out


def write(path, text):
    """The text, compressed as the name says."""
    with pa.output_stream(str(path), compression=codec_of_name(path.name)) as out:
        out.write(text.encode())


class _CsvSuite(ConnectorSuite):
    options: ClassVar[dict] = {}
    form: ClassVar[dict] = {}
    suffix: ClassVar[str] = ".csv"

    @pytest.fixture
    def schema(self):
        return SCHEMA

    @pytest.fixture
    def connector(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text_files, "BLOCK_BYTES", 4_096)
        for number, count in enumerate((1_000, 3, 0)):
            self.write(tmp_path / f"{number}{self.suffix}", rows(count, first=number * 5_000))
        return lambda: connector(tmp_path, **self.options)

    def write(self, path, values):
        write(path, text_of(values, **self.form))

    @pytest.fixture
    def add_split(self, tmp_path, connector):
        def add():
            self.write(tmp_path / f"0a{self.suffix}", rows(40))
            return f"0a{self.suffix}"

        return add

    @pytest.fixture
    def malformed(self, tmp_path):
        good = rows(60)
        lines = [text_of([row], **self.form | {"header": None}) for row in good]
        bad = {10: ("id", "x,,1,2024-01-01"), 11: ("id", "0x10,a,1,2024-01-01"), 12: (None, "1,a"),
               30: ("price", "1,a,1.005,2024-01-01"), 59: ("at", "1,a,1,yesterday"), 60: (None, "1,a,2,3,4,5")}
        delimiter, end = self.form.get("delimiter", ","), self.form.get("end", "\n")
        for number, (_, text) in sorted(bad.items(), reverse=True):
            lines.insert(number, text.replace(",", delimiter) + end)
        header = text_of([], **self.form)
        directory = tmp_path / "malformed"
        directory.mkdir()
        name = f"bad{self.suffix}"
        write(directory / name, header + "".join(lines))
        return connector(directory, **self.options), name, good, [column for _, (column, _) in sorted(bad.items())]

    def test_all_rows_are_there(self, connector):
        opened = connector()
        read = [row for split in opened.enumerator().list_splits() for row in
                values(opened.open_split(split, range(4)))]
        assert read == rows(1_000) + rows(3, 5_000)


class TestCsv(_CsvSuite):
    pass


class TestOtherForm(_CsvSuite):
    options: ClassVar = {"header": "false", "delimiter": ";", "null": "NULL"}
    form: ClassVar = {"header": None, "delimiter": ";", "end": "\r\n", "null": "NULL"}


class TestGzip(_CsvSuite):
    suffix: ClassVar = ".csv.gz"


class TestZstdOfOtherForm(TestOtherForm):
    suffix: ClassVar = ".csv.zst"


@pytest.mark.parametrize("suffix", [*CODECS])
def test_compressed_files_are_read_as_if_they_were_not(tmp_path, monkeypatch, suffix):
    """From any offset, in parts of any size, also records that are longer than a block."""
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 100)
    rng = random.Random(run_seed())
    wanted = [*rows(300), (300, "x" * 5_000, None, None), *rows(20, first=301)]
    write(tmp_path / f"a.csv{suffix}", text_of(wanted).rstrip("\n"))
    reader = connector(tmp_path).open_split(f"a.csv{suffix}", range(4))
    found, offsets = [], []
    while not reader.is_finished:
        offsets.append((reader.offset, len(found)))
        chunk = reader.next_chunk(rng.randint(1, 50))
        found += [] if chunk is None else zip(*(column.array.to_pylist() for column in chunk.columns), strict=True)
        if rng.random() < .1:
            reader.close()
    assert found == wanted
    for offset, count in rng.sample(offsets, 8):
        reader.seek(offset)
        assert values(reader) == wanted[count:]
    reader.skip_all()
    assert reader.is_finished and reader.offset.partition(":")[0] == str(len(text_of(wanted).rstrip("\n").encode()))


def test_a_gzip_file_of_several_members_is_read_whole(tmp_path):
    parts = [text_of(rows(50)), text_of(rows(50, first=50), header=None)]
    (tmp_path / "a.csv.gz").write_bytes(b"".join(gzip.compress(part.encode()) for part in parts))
    assert values(connector(tmp_path).open_split("a.csv.gz", range(4))) == rows(100)


@pytest.mark.parametrize("suffix", [*CODECS])
def test_a_damaged_compressed_file_is_an_error_that_names_it(tmp_path, suffix):
    write(tmp_path / f"a.csv{suffix}", text_of(rows(20_000)))
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(ConnectorError, match=rf"a\.csv\{suffix} cannot be read"):
        values(connector(tmp_path).open_split(path.name, range(4)))
    path.write_bytes(b"no such thing" * 100)
    with pytest.raises(ConnectorError, match=rf"a\.csv\{suffix} cannot be read"):
        values(connector(tmp_path).open_split(path.name, range(4)))
    path.write_bytes(b"")
    assert values(connector(tmp_path).open_split(path.name, range(4))) == []


def test_columns_are_found_by_the_header_of_each_file(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffmore,id,name\nx,1,a\n")
    (tmp_path / "b.csv").write_text('name,id\n"b",2')
    (tmp_path / "c.csv").write_text("name,id")
    (tmp_path / "d.csv").write_text("")
    (tmp_path / "e.csv").write_text("id,id,name\n1,2,a\n")
    opened = connector(tmp_path)
    assert [values(opened.open_split(f"{name}.csv", (0, 1))) for name in "abcd"] == [[(1, "a")], [(2, "b")], [], []]
    with pytest.raises(ConnectorError, match=r"b\.csv has no column 'price'; it has name, id"):
        opened.open_split("b.csv", (0, 2))
    with pytest.raises(ConnectorError, match=r"e\.csv has several columns 'id'"):
        opened.open_split("e.csv", (0,))
    assert values(opened.open_split("e.csv", (1,))) == [("a",)]


def test_values_of_each_type(tmp_path):
    schema = Schema.of(b="boolean", s="smallint", n="numeric(20,3)", r="real", x="double", v="varchar", d="date",
                       t="time", z="timestamptz", j="jsonb")
    (tmp_path / "a.csv").write_text(
        't,-5,1.5,0.1,inf,NULL,2024-02-29,12:30:00.5,2024-01-01 00:00:00+02:00,"{""b"": 1, ""a"":[]}"\n'
        "FALSE, 7 ,-0.125,1e3,-1e-3,,0001-01-01,00:00:00,2024-01-01T00:00:00Z,\n"
        'off,,,,NaN,"NULL",,,,null\n')
    found = values(connector(tmp_path, schema, header="false", null="").open_split("a.csv", range(10)))
    assert found[0][:3] == (True, -5, Decimal("1.500")) and found[0][3] == pytest.approx(0.1)
    assert found[0][4:] == (float("inf"), "NULL", date(2024, 2, 29), time(12, 30, 0, 500_000),
                            datetime(2023, 12, 31, 22, tzinfo=UTC), '{"a":[],"b":1}')
    assert found[1] == (False, 7, Decimal("-0.125"), 1_000.0, -0.001, None, date(1, 1, 1), time(),
                        datetime(2024, 1, 1, tzinfo=UTC), None)
    assert found[2][0] is False and found[2][1:4] == (None,) * 3 and found[2][5] == "NULL" and found[2][9] == "null"


@pytest.mark.parametrize(("column", "text"), [
    ("s", "40000"), ("s", "1.0"), ("s", "0x1"), ("n", "1.2345"), ("n", "1" * 30), ("r", "1e39"), ("x", "1e400"),
    ("x", "a"), ("d", "2024-02-30"), ("t", "25:00:00"), ("z", "2024-01-01 00:00:00"), ("j", "{"), ("v", b"\xff"),
    ("b", "maybe"),
])
def test_values_that_are_none(tmp_path, column, text):
    schema = Schema.of(b="boolean", s="smallint", n="numeric(20,3)", r="real", x="double", v="varchar", d="date",
                       t="time", z="timestamptz", j="jsonb")
    cells = [b"" if name != column else text if isinstance(text, bytes) else text.encode() for name in schema.names]
    (tmp_path / "a.csv").write_bytes(b"," * 9 + b"\n" + b",".join(cells) + b"\n" + b"," * 9)
    reader = connector(tmp_path, schema, header="false").open_split("a.csv", range(10))
    assert len(reader.next_chunk(10)) == 1
    with pytest.raises(MalformedRows, match=r"record 2 of .*a\.csv") as caught:
        reader.next_chunk(10)
    assert caught.value.column == column and caught.value.split == "a.csv"
    assert len(reader.next_chunk(10)) == 1 and reader.is_finished


def test_an_escape_and_no_quotes(tmp_path):
    (tmp_path / "a.csv").write_text('1,a\\,"b\n2,"c\n3,\\\nd\n')
    reader = connector(tmp_path, header="false", quote="", escape="\\", null="\\N").open_split("a.csv", (0, 1))
    # the source has four columns
    with pytest.raises(MalformedRows, match="Expected 4 columns"):
        reader.next_chunk(10)
    two = connector(tmp_path, SCHEMA.project((0, 1)), header="false", quote="", escape="\\")
    assert values(two.open_split("a.csv", (0, 1))) == [(1, 'a,"b'), (2, '"c'), (3, "\nd")]


def test_a_record_without_an_end_ends_with_its_line(tmp_path, monkeypatch):
    two = SCHEMA.project((0, 1))
    (tmp_path / "a.csv").write_text('1,a\n2,"b\n3,c\n')
    reader = connector(tmp_path, two, header="false").open_split("a.csv", (0, 1))
    assert values_and_errors(reader) == [(1, "a"), "record 2 of", (3, "c")]
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text_files, "MOST_RECORD_BYTES", 256)
    (tmp_path / "a.csv").write_text("1,a\n2," + "b" * 1_000 + "\n3,c\n")
    reader = connector(tmp_path, two, header="false").open_split("a.csv", (0, 1))
    found = values_and_errors(reader)
    assert found[:2] == [(1, "a"), "record 2 of"] and found[-1] == (3, "c")


def values_and_errors(reader):
    found = []
    while not reader.is_finished:
        try:
            chunk = reader.next_chunk(100)
            found += [] if chunk is None else list(chunk.rows())
        except MalformedRows as error:
            found.append(error.reason[:11])
    return found


def test_many_faults_cost_little_and_blocks_end_anywhere(tmp_path, monkeypatch):
    rng = random.Random(run_seed())
    two = SCHEMA.project((0, 1))
    for block in (16, 64, 1_000):
        monkeypatch.setattr(text_files, "BLOCK_BYTES", block)
        lines, expected = [], []
        for number in range(1_500):
            if rng.random() < 0.2:
                lines.append(rng.choice(["x,a", "1", '1,a,"b'.replace('"', ""), ""]))
                expected += ["record"] if lines[-1] else []
            else:
                name = rng.choice(["a", '"b\nc"', '""', "\u00e9" * rng.randrange(1, 40)])
                lines.append(f"{number},{name}")
                expected.append(number)
        (tmp_path / "a.csv").write_text("\n".join(lines))
        reader = connector(tmp_path, two, header="false").open_split("a.csv", (0, 1))
        found = [each[:6] if isinstance(each, str) else each[0] for each in values_and_errors(reader)]
        assert found == expected


@pytest.mark.parametrize(("options", "fault"), [
    ({"delimiter": ""}, "delimiter is one ASCII character"), ({"delimiter": "ab"}, "one ASCII character"),
    ({"quote": "é"}, "one ASCII character"), ({"header": "maybe"}, "true or false"),
    ({"nulls": ""}, "no option 'nulls'"),
])
def test_invalid_options_are_refused(tmp_path, options, fault):
    with pytest.raises(ConnectorError, match=fault):
        connector(tmp_path, **options)


@pytest.mark.parametrize("kind", ["interval", "bytea", "bigint[]", "struct<a int>"])
def test_types_without_a_text_are_refused(tmp_path, kind):
    with pytest.raises(ConnectorError, match="column 'x': no CSV file has values of"):
        connector(tmp_path, Schema.of(x=kind))
