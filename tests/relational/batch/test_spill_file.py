"""Temporary files of queries: what was written is read, or an error; rows in them by hash, and in order."""

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from hummock.errors import Corruption
from relational.batch import QueryMemory
from relational.batch.partitions import FILES, LEVELS, partitioned
from relational.batch.shared_rows import SharedRows
from relational.batch.sorted_runs import MERGED_RUNS, SortedRuns
from relational.chunk import Column, DataChunk
from relational.errors import QueryTooLarge, SpillFailed
from relational.types import ASCENDING, DESCENDING, DataType
from relational.types.ordering import SortKey
from tests.relational.random_rows import ALL, columns_of, random_rows
from tests.support.drivers.seeds import run_seed


def numbers(*columns):
    return DataChunk([Column(pa.array(each, pa.int64())) for each in columns])


def rows_of(chunks):
    return [row for chunk in chunks for row in chunk.rows()]


def test_chunks_of_every_type_are_read_as_they_were_written(tmp_path):
    rng, memory = random.Random(run_seed()), QueryMemory(1, directory=str(tmp_path))
    written, file = [], memory.file(ALL)
    for rows in (1, 300, 0, 77):
        whole = DataChunk(columns_of(ALL, random_rows(rng, ALL, rows + 20)), capacity=rows + 20)
        written.append(whole.slice(rng.randrange(20), rows))
        file.append(written[-1])
    assert list(map(repr, rows_of(file))) == list(map(repr, rows_of(written)))
    assert (len(file), file.rows, file.chunk(1).types) == (4, 378, tuple(ALL))
    assert not list(tmp_path.iterdir())  # it has no name
    assert memory.counts.query_disk_bytes == memory.counts.query_spilled_bytes == file.size_bytes > 0
    del file
    assert (memory.counts.query_disk_bytes, memory.counts.query_spilled_bytes > 0) == (0, True)


def test_rows_without_columns_are_counted():
    file = QueryMemory(1).file([])
    file.append(DataChunk([], capacity=12))
    assert [chunk.capacity for chunk in file] == [12]


def test_a_chunk_is_an_arrow_stream():
    file = QueryMemory(1).file([DataType.BIGINT, DataType.BIGINT])
    file.append(numbers([1, 2, None], [4, 5, 6]))
    with pa.ipc.open_stream(os.pread(file._descriptor, file.size_bytes, 0)) as stream:
        assert stream.read_all().to_pydict() == {"0": [1, 2, None], "1": [4, 5, 6]}


@pytest.mark.parametrize("damage", [lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: data[:-1]])
def test_damaged_bytes_are_an_error_that_names_the_file(tmp_path, damage):
    file = QueryMemory(1, directory=str(tmp_path)).file([DataType.BIGINT])
    for first in range(3):
        file.append(numbers(range(first, 1_000)))
    first = file._chunks[1].start
    data = damage(os.pread(file._descriptor, file.size_bytes - first, first))
    os.ftruncate(file._descriptor, first)
    os.pwrite(file._descriptor, data, first)
    assert file.chunk(0).capacity == 1_000
    with pytest.raises(Corruption, match=f"a temporary file of a query in {tmp_path}"):
        list(file)


def test_a_full_disk_and_a_missing_directory_are_errors(tmp_path, monkeypatch):
    with pytest.raises(SpillFailed, match="query_directory sets another directory"):
        QueryMemory(1, directory=str(tmp_path / "none")).file([DataType.BIGINT])
    file = QueryMemory(1).file([DataType.BIGINT])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SpillFailed, match="No space left on device"):
        file.append(numbers([1]))


def test_a_short_write_is_continued(monkeypatch):
    file, write = QueryMemory(1).file([DataType.BIGINT]), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, start: write(descriptor, data[:100], start))
    file.append(numbers(range(5_000)))
    assert rows_of(file) == [(n,) for n in range(5_000)]


def test_files_take_no_more_than_the_disk_space_of_all_queries():
    memory = QueryMemory(1, 10_000)
    file, other = memory.file([DataType.BIGINT]), memory.file([DataType.BIGINT])
    file.append(numbers(np.random.default_rng(run_seed()).integers(0, 1 << 60, 1_000)))
    with pytest.raises(QueryTooLarge, match="bytes of rows on disk beyond the limit of 10,000, which query_disk_bytes"):
        other.append(file.chunk(0))
    rows = file.chunk(0)
    del file
    other.append(rows)


@pytest.mark.parametrize("level", range(LEVELS))
def test_equal_rows_are_in_one_file(level):
    rng = np.random.default_rng(run_seed())
    keys = rng.integers(0, 200, 5_000)
    chunks = [numbers(range(start, start + 1_000), keys[start : start + 1_000]) for start in range(0, 5_000, 1_000)]
    files = partitioned(iter(chunks), chunks[0].types, (1,), QueryMemory(1), level)
    assert len(files) == FILES
    by_file = [rows_of(file) for file in files]
    assert sorted(row for rows in by_file for row in rows) == sorted(rows_of(chunks))
    keys_of = [{key for _, key in rows} for rows in by_file]
    assert sum(map(len, keys_of)) == len(set().union(*keys_of)) == len(set(keys))
    assert sum(map(bool, keys_of)) > FILES // 2


def test_levels_part_the_rows_of_one_file_again():
    chunks, memory = [numbers(range(20_000))], QueryMemory(1)
    for level in range(LEVELS):
        files = partitioned(chunks, chunks[0].types, (0,), memory, level)
        chunks = list(max(files, key=lambda file: file.rows))
    assert 0 < sum(chunk.capacity for chunk in chunks) < 20_000 // FILES ** (LEVELS - 1)


@pytest.mark.parametrize("memory_bytes", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
def test_rows_are_in_order_and_equal_ones_as_they_came(memory_bytes, order):
    rng, memory = np.random.default_rng(run_seed()), QueryMemory(memory_bytes)
    runs, number = SortedRuns([DataType.BIGINT] * 2, [SortKey(0, order)], memory), 0
    expected = []
    for size in rng.integers(0, 200, 3 * MERGED_RUNS):
        keys = rng.integers(0, 50, size).tolist()
        runs.add(numbers(keys, range(number, number + size)))
        expected += zip(keys, range(number, number + size), strict=True)
        number += int(size)
    expected.sort(key=lambda row: -row[0] if order is DESCENDING else row[0])
    assert rows_of(runs.chunks()) == expected
    assert bool(memory.counts.query_spilled_bytes) == (memory_bytes < 1 << 30)
    assert len(runs._runs) <= MERGED_RUNS


@pytest.mark.parametrize("memory_bytes", [1, 3_000, 1 << 30])
def test_shared_rows_are_computed_once_for_readers_at_any_pace(memory_bytes):
    rng, computed = random.Random(run_seed()), []

    def chunks():
        for number in range(40):
            computed.append(number)
            yield numbers([number] * rng.randrange(20))

    shared = SharedRows(chunks(), QueryMemory(memory_bytes))
    readers = [iter(shared) for _ in range(3)]
    found = [[] for _ in readers]
    left = list(range(3))
    while left:
        at = rng.choice(left)
        chunk = next(readers[at], None)
        if chunk is None:
            left.remove(at)
        else:
            found[at] += chunk.rows()
    assert found[0] == found[1] == found[2] == rows_of(shared) == sorted(found[0])
    assert computed == list(range(40))
