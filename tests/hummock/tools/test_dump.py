"""`describe`: an SSTable dumped as text."""

from pathlib import Path

import pytest

from hummock.errors import Corruption
from hummock.tools.dump import describe
from tests.hummock.oracle_hash import content_hash
from tests.hummock.sstable.test_builder import build

GOLDEN = Path(__file__).parents[1] / "golden"


def test_the_description_shows_record_blocks_and_entries():
    meta, data = ((GOLDEN / f"lz4.{part}").read_bytes() for part in ("meta", "data"))
    lines = list(describe(meta, "sst/x.meta", data, entries=2))
    assert "entries        299: 12 stale, 100 deletes" in lines
    assert "tables         1, 2, 7" in lines
    assert sum("lz4" in line and line.strip()[:1].isdigit() for line in lines) == 3
    assert lines[-3:] == [
        "1/0/30303033 @ 1  =>  0 bytes",
        "1/0/30303132 @ 4  =>  19 bytes c2606c0ed94fa28b338c32894339da53732170",
        "3 blocks and 299 entries are as written"]


def test_the_content_hash_is_shown_where_there_is_one():
    output = build([(b"a", 1, b"v")])
    (shown,) = (line for line in describe(output.meta, "m") if line.startswith("content hash"))
    assert shown.split()[-1] == f"{content_hash([(b'a', 1, b'v')]):016x}"
    assert not [line for line in describe((GOLDEN / "lz4.meta").read_bytes(), "m") if "content hash" in line]


def test_a_damaged_block_is_named():
    meta, data = ((GOLDEN / f"lz4.{part}").read_bytes() for part in ("meta", "data"))
    with pytest.raises(Corruption, match="block 1, crc32c") as caught:
        list(describe(meta, "sst/x.data", data[:3_000] + b"?" + data[3_001:]))
    assert caught.value.object_name == "sst/x.data"
