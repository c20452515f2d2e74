"""The interpreter's work for a chunk, in objects and lines of Python, is independent of its rows."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from Cython.Build import cythonize

from hummock.columnar.binary_column import BinaryColumn
from relational.chunk import DataChunk, StreamChunk, VnodeMap, mask_of, vnodes_of
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import OrderType, Schema
from tests.reliability.children import COMPILER
from tests.support.suites.interpreter_work import assert_no_work_per_row, gil_takings, objects_made, work_of

SCHEMA = Schema.of(
    id="bigint", name="varchar", amount="numeric(10, 2)", seen="timestamp", span="interval", ok="boolean"
)


def chunk_of(rows):
    values = [(i % 97, f"name {i}", i % 50, None, None, i % 3 == 0) for i in range(rows)]
    return StreamChunk.from_rows(SCHEMA, [(i % 2, row) for i, row in enumerate(values)])


def all_verbs(chunk):
    keys = KeyEncoder(SCHEMA.types, [OrderType(descending=True)] * len(SCHEMA))
    values = ValueEncoder(SCHEMA.types)
    owners = VnodeMap.even([0, 1])

    def work():
        kept = chunk.filter(mask_of(chunk.columns[5]))
        dense = kept.compact()
        encoded = keys.encode(chunk.columns, table_id=1, vnodes=vnodes_of(chunk.columns[:1]))
        DataChunk(keys.decode(encoded, skip=6))
        values.decode(values.encode(dense.columns), [0, 2])
        chunk.split_by_vnode([0], owners)
        chunk.without_unchanged_updates()
        StreamChunk.concat([chunk, dense])
        StreamChunk.from_arrow(pa.record_batch(kept))
        chunk.take(np.zeros(10, np.int32))

    return work


ROWS, MORE_ROWS = 1_024, 10_240


def test_work_does_not_grow_with_rows():
    small, large = chunk_of(ROWS), chunk_of(MORE_ROWS)
    for chunk in (small, large):
        all_verbs(chunk)()
    few, many = work_of(all_verbs(small)), work_of(all_verbs(large))
    assert_no_work_per_row(few, many, MORE_ROWS - ROWS)


PLANTED = """
cdef class Box:
    cdef double value

def floats(Py_ssize_t rows):
    cdef Py_ssize_t row
    cdef object found
    cdef double value = 0
    for row in range(rows):
        value += 0.5
        found = value

def tuples(Py_ssize_t rows, first, second):
    for row in range(rows):
        found = (first, second)

def boxes(Py_ssize_t rows):
    for row in range(rows):
        found = Box()

def calls(Py_ssize_t rows, work):
    for row in range(rows):
        work(row)

def takings(Py_ssize_t rows):
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            with gil:
                pass

def sums(Py_ssize_t rows):
    cdef Py_ssize_t row, total = 0
    for row in range(rows):
        total += row
    return total
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A compiled module that creates objects for each row in the ways a hot path might."""
    directory = tmp_path_factory.mktemp("planted")
    (directory / "planted.pyx").write_text(PLANTED)
    with contextlib.chdir(directory):
        cythonize(["planted.pyx"], language_level=3, quiet=True)
        headers = {sysconfig.get_paths()[name] for name in ("include", "platinclude")}
        subprocess.run([COMPILER, "-O3", "-DNDEBUG", "-w", "-shared", "-fPIC", *(f"-I{each}" for each in headers),
                        "-o", "planted.so", "planted.c"], check=True)
    spec = importlib.util.spec_from_file_location("planted", directory / "planted.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "relational.planted", module)
        yield module


@pytest.mark.parametrize("kind", ["floats", "tuples", "boxes", "calls", "python loop", "python call", "bytes"])
def test_an_object_that_is_made_for_each_row_is_seen(planted, kind):
    column = BinaryColumn.from_pylist([b"value"] * 5_000)
    works = {"floats": planted.floats, "tuples": lambda rows: planted.tuples(rows, "a", "b"), "boxes": planted.boxes,
             "calls": lambda rows: planted.calls(rows, str), "bytes": lambda rows: list(column.slice(0, rows)),
             "python loop": lambda rows: sum([0.5 for _ in range(rows)]),
             "python call": lambda rows: list(map(float, range(rows)))}
    few, many = (work_of(lambda rows=rows: works[kind](rows)) for rows in (1_000, 5_000))
    assert many - few > 3_900
    with pytest.raises(AssertionError, match="with 4000 rows more"):
        assert_no_work_per_row(few, many, 4_000)


def test_a_loop_that_makes_no_object_is_not_taken_for_one(planted):
    few, many = (work_of(lambda rows=rows: planted.sums(rows)) for rows in (1_000, 5_000))
    assert few == many


def test_a_taking_of_the_gil_for_each_row_is_counted(planted):
    """Threads that other tests left may take it meanwhile, but not in each of many tries."""
    def least(work):
        found = []
        for _ in range(20):
            with gil_takings() as taken:
                work(1_000)
            found += taken
        return min(found)

    assert (least(planted.takings), least(planted.floats)) == (1_001, 0)


def test_objects_of_other_threads_are_counted_where_all_are(planted):
    """Threads that other tests left may create some meanwhile, but not in each of many tries."""
    found = []
    for _ in range(20):
        with objects_made() as made, ThreadPoolExecutor(1) as pool:
            pool.submit(planted.floats, 5_000).result()
        found += made
    assert 5_000 < min(found) < 10_000
