"""Arrow files: batches that refer to a mapped file, and those that are decompressed or read column by column."""

import pyarrow as pa
import pytest

from stream.connector.arrow_files import ArrowFile

TABLE = pa.table({"a": range(5_000), "text": [f"row {number}" for number in range(5_000)], "b": [None, 1.5] * 2_500})


@pytest.fixture(params=[None, "lz4", "zstd"], ids=["plain", "lz4", "zstd"])
def path(request, tmp_path):
    options = pa.ipc.IpcWriteOptions(compression=request.param)
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), TABLE.schema, options=options) as file:
        file.write_table(TABLE, max_chunksize=2_000)
    return str(tmp_path / "x.arrow")


@pytest.mark.parametrize("opened", [pa.memory_map, pa.OSFile], ids=["mapped", "read"])
@pytest.mark.parametrize("names", [["b", "a"], ["text"], ["a", "text", "b"]], ids=str)
def test_batches_have_the_columns_that_are_wanted(path, opened, names):
    file = ArrowFile(opened(path))
    assert file.groups == 3
    for group in (2, 0, 1):
        rows, batches = file.read(group, names)
        expected = TABLE.slice(2_000 * group, 2_000).select(names)
        assert rows == expected.num_rows and pa.Table.from_batches(batches) == expected.combine_chunks()


def test_a_batch_of_a_mapped_file_that_is_not_compressed_is_no_copy(path, request):
    before = pa.total_allocated_bytes()
    file = ArrowFile(pa.memory_map(path))
    (batch,) = file.read(0, ["a", "text"])[1]
    copied = pa.total_allocated_bytes() - before
    assert (copied < 1_000) == ("plain" in request.node.name), f"{copied} of {batch.nbytes} bytes"


def test_an_empty_file_has_no_groups(tmp_path):
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), TABLE.schema):
        pass
    assert ArrowFile(pa.memory_map(str(tmp_path / "x.arrow"))).groups == 0
