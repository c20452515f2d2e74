"""Pieces of verbatim blocks: their checksums, lookups that read some of them, and damage."""

import contextlib
import os
import random
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import hummock
from hummock.base.checksum import crc32c_of
from hummock.base.key import user_key
from hummock.errors import Corruption
from hummock.sstable import meta
from hummock.sstable.meta import PIECES, SstableMeta, digest_of, encode_meta, read_sections
from tests.hummock.sstable.test_builder import build, opened

PIECE_BYTES = 8_192
BLOCK_BYTES = 65_536


@pytest.fixture(name="folder")
def disk_folder():
    """A directory whose files tell what the page cache has: those of tmpfs do not, so nothing is read in pieces."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        probe = Path(name, "probe")
        probe.write_bytes(b"x")
        descriptor = os.open(probe, os.O_RDONLY)
        try:
            os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
        except (AttributeError, OSError) as error:
            pytest.skip(f"/var/tmp does not read without waiting: {error!r}")
        finally:
            os.close(descriptor)
        yield Path(name)


def rows_of(rng, count, sizes, key_bytes=0):
    """Rows in key order, with noise as values and at the end of keys, and a few deletes."""
    return [(user_key(1, 0, b"%06d" % number + rng.randbytes(key_bytes)),
             rng.randbytes(rng.choice(sizes)) if rng.random() < .97 else None) for number in range(count)]


def store_at(directory, cache_bytes=1, **options):
    return hummock.open(f"file://{directory}", role="writer", compaction=False, block_cache_bytes=cache_bytes,
                        block_bytes=BLOCK_BYTES, inline_bytes=0, **options)


def write(directory, rows, **options):
    with store_at(directory, **options) as store:
        store.write(dict(rows))
        (info,) = store.version.sstables
    return directory / "sst" / f"{info.name}.data"


def sums_in(encoded):
    section = bytes(read_sections(encoded, "m").get(PIECES, b""))
    return struct.unpack(f"<{len(section) // 4}I", section)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_file_has_a_checksum_of_each_piece_of_each_verbatim_block(codec):
    rng = random.Random(3)
    sizes = (100, 9_000, 200_000)
    entries = [(key, 1, value) for key, value in rows_of(rng, 60, sizes)]
    entries += [(user_key(2, 0, b"%06d" % number), 1, b"v" * 500) for number in range(1_000)]
    output = build(entries, codec=codec, block_bytes=BLOCK_BYTES)
    expected, pieced = [], 0
    for block in opened(output).index:
        stored = bytes(output.data)[block.offset:block.offset + block.size]
        if block.codec == 0 and block.size > PIECE_BYTES:
            expected += [crc32c_of(stored[at:at + PIECE_BYTES]) for at in range(0, block.size, PIECE_BYTES)]
            pieced += 1
    assert sums_in(output.meta) == tuple(expected)
    assert 1 < pieced < len(opened(output).index)
    assert codec == "none" or opened(output).index[len(opened(output).index) - 1].codec == 1


def test_small_blocks_have_none():
    entries = [(key, 1, value) for key, value in rows_of(random.Random(4), 10, (500,))]
    assert sums_in(build(entries, codec="none").meta) == ()


@pytest.mark.parametrize("change", [lambda sums: sums[:-4], lambda sums: sums + b"0000", lambda sums: sums[:-1]])
def test_a_wrong_number_of_checksums_is_refused(change):
    output = build([(key, 1, value) for key, value in rows_of(random.Random(4), 100, (500,))], codec="none")
    sections = {tag: bytes(payload) for tag, payload in read_sections(output.meta, "m").items()}
    bare = SstableMeta.decode(output.meta, None, "m").info
    forged = encode_meta(replace(bare, meta_bytes=0, meta_digest=""), sections[2], sections[3], sections[7], [],
                         change(sections[PIECES]))
    with pytest.raises(Corruption, match="checksums of pieces"):
        SstableMeta.decode(forged, replace(bare, meta_bytes=len(forged), meta_digest=digest_of(forged)), "m")


@pytest.mark.parametrize(("sizes", "key_bytes"), [
    ((230,), 0), ((230,), 150), ((20,), 80), ((1, 40, 400), 20), ((3_000, 20, 9_000), 0), ((0, 70_000), 0)])
@pytest.mark.parametrize("call_keys", [None, 1, 5, 60])
def test_answers_are_those_of_whole_blocks(folder, sizes, key_bytes, call_keys):
    """Of lookups so few that hardly a block enters the cache, for which it would be read as a whole."""
    rng = random.Random(5)
    rows = rows_of(rng, 5_000_000 // (sum(sizes) // len(sizes) + key_bytes), sizes, key_bytes)
    write(folder, rows)
    wanted = [rng.choice(rows)[0] + rng.choice((b"", b"", b"x")) for _ in range(120)]
    expected = [dict(rows).get(key) for key in wanted]
    with store_at(folder) as store:
        if call_keys is None:
            found = [store.get(key) for key in wanted]
        else:
            found = []
            for at in range(0, len(wanted), call_keys):
                found += store.get_many(pa.array(wanted[at:at + call_keys], pa.binary())).to_arrow().to_pylist()
    assert found == expected


def bytes_of_a_first_lookup(directory, rows):
    """Bytes read for a row of each block, once."""
    with store_at(directory, cache_bytes=1 << 20) as store:
        store.get(rows[0][0])
        before = store.metrics.total("hummock_object_store_bytes")
        asked = rows[500::300]
        assert [store.get(key) for key, _ in asked] == [value for _, value in asked]
        return (store.metrics.total("hummock_object_store_bytes") - before) / len(asked)


def test_a_lookup_reads_a_few_pieces(folder):
    rows = rows_of(random.Random(6), 20_000, (200, 250))
    write(folder, rows)
    assert 0 < bytes_of_a_first_lookup(folder, rows) <= 3 * PIECE_BYTES


@pytest.mark.parametrize("asked", [15, 600])
def test_a_file_that_lookups_keep_waiting_for_is_read_in_order_too(folder, asked):
    """Once they have waited for an eighth of its 200 blocks; a few lookups do not read it."""
    rows = rows_of(random.Random(7), 50_000, (230, 280))
    data = write(folder, rows)
    forget_pages(data)
    some = random.Random(11).choices(rows, k=asked)
    with store_at(folder) as store:
        file = store._sstable_store.object_store.open_file(f"sst/{data.name}")
        assert [store.get(key) for key, _ in some] == [value for _, value in some]
        assert (file.warmed > 0) == (asked == 600)


def forget_pages(path):
    """The page cache of the system has no page of the file afterwards, or the test is skipped."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with contextlib.suppress(BlockingIOError):
            if os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT):
                pytest.skip("the system keeps the pages of a file that it is asked to drop")
    finally:
        os.close(descriptor)


def damaged(folder, rows, value):
    """The file of the rows, in which a byte of `value` is another one."""
    data = write(folder, rows)
    stored = bytearray(data.read_bytes())
    stored[stored.index(value) + 100] ^= 1
    data.chmod(0o644)
    data.write_bytes(stored)
    return data


@pytest.mark.parametrize("ways", ["get", "get_many"])
def test_a_damaged_piece_is_named_and_the_others_are_read(folder, ways):
    rows = rows_of(random.Random(8), 10_000, (230,))
    near = next(number for number in range(5_000, 10_000) if rows[number][1])
    data = damaged(folder, rows, rows[near][1])
    with store_at(folder) as store:
        def ask(number):
            keys = pa.array([rows[number][0]], pa.binary())
            return store.get(keys[0].as_py()) if ways == "get" else store.get_many(keys).to_arrow()[0].as_py()

        assert ask(3) == rows[3][1]
        with pytest.raises(Corruption, match=data.name):
            ask(near)
        assert [ask(number) for number in range(0, 4_000, 200)] == [row[1] for row in rows[:4_000:200]]


def test_keys_in_a_damaged_piece_are_not_looked_for(folder):
    rows = rows_of(random.Random(8), 1_000, (230,))
    data = damaged(folder, rows, rows[0][0][:6])      # the prefix of keys, in the first piece of the first block
    with store_at(folder) as store, pytest.raises(Corruption, match=data.name):
        store.get(rows[0][0])


def test_a_file_without_the_section_is_read_by_whole_blocks(folder, monkeypatch):
    """As an earlier release wrote it, and as one reads it that does not know the section."""
    rows = rows_of(random.Random(9), 20_000, (200, 250))
    write(folder, rows)
    monkeypatch.setattr(meta, "PIECES", 99)
    assert bytes_of_a_first_lookup(folder, rows) > BLOCK_BYTES * 0.9
