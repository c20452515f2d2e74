"""SSTable builder: entries round-trip, the file's record is correct, blocks and filters follow their rules."""

import random

import pytest

from hummock.base.checksum import hash64_of
from hummock.base.key import user_key
from hummock.base.table_rules import PrefixRule
from hummock.options import StorageOptions
from hummock.sstable.block import Block
from hummock.sstable.builder import SstableBuilder
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.meta import SstableMeta
from tests.hummock.oracle_block import full_key_order

NAME = "0123456789abcdef" * 2


def build(entries, prefix_rules=None, policy="blocked_bloom", **options):
    builder = SstableBuilder(StorageOptions(**options), filter_policy(policy), NAME, prefix_rules)
    for entry in entries:
        builder.put(*entry)
    return builder.finish()


def opened(output) -> SstableMeta:
    return SstableMeta.decode(output.meta, output.info, f"sst/{output.name}.meta")


def block_of(output, meta: SstableMeta, at: int) -> Block:
    block = meta.index[at]
    stored = bytes(output.data)[block.offset:block.offset + block.size]
    return Block.decode(stored, block.codec, block.raw_size, block.checksum, output.name, at)


def entries_of(output) -> list:
    meta = opened(output)
    return [entry for at in range(len(meta.index)) for entry in block_of(output, meta, at)]


def seek(output, key: bytes, epoch: int):
    """The first entry at or after (key, epoch), found as every reader of a file does."""
    meta = opened(output)
    at = meta.index.find(key, epoch)
    for block in (block_of(output, meta, n) for n in range(at, len(meta.index))):
        row = block.find(key, epoch)
        if row < len(block):
            return block[row]
    return None


def random_entries(rng: random.Random, count: int, tables=(1, 2, 7)) -> list:
    entries = {}
    for _ in range(count):
        key = user_key(rng.choice(tables), rng.randrange(3), b"%04d" % rng.randrange(count))
        entries[key, rng.randrange(1, 5) << 16] = rng.choice((None, b"", rng.randbytes(rng.randrange(80))))
    return sorted(((key, epoch, value) for (key, epoch), value in entries.items()), key=full_key_order)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_every_entry_comes_back_and_the_record_is_true(codec):
    rng = random.Random(61)
    for _ in range(20):
        entries = random_entries(rng, rng.randrange(1, 2_000))
        output = build(entries, codec=codec, block_bytes=rng.choice((1, 400, 4_096, 65_536)))
        assert entries_of(output) == entries
        info, keys = output.info, [key for key, _, _ in entries]
        assert info.rows == len(entries) and info.stale_rows == len(keys) - len(set(keys))
        assert info.tombstones == sum(value is None for _, _, value in entries)
        assert (info.smallest, info.largest) == (keys[0], keys[-1])
        assert info.table_ids == tuple(sorted({int.from_bytes(key[:4], "big") for key in keys}))
        epochs = [epoch for _, epoch, _ in entries]
        assert (info.min_epoch, info.max_epoch) == (min(epochs), max(epochs))
        assert (info.data_bytes, info.meta_bytes) == (len(output.data), len(output.meta))
        assert info.uncompressed_bytes == sum(block.raw_size for block in opened(output).index)
        assert (info.codec, info.filter_policy, info.name) == (codec, "blocked_bloom", NAME)


def test_two_epochs_of_two_keys_are_stored_as_the_design_shows():
    entries = [(b"a", 2, None), (b"a", 1, b"1"), (b"b", 2, b"3"), (b"b", 1, b"2")]
    assert entries_of(build(entries)) == entries


def test_seeks_end_at_the_first_entry_at_or_after_the_target():
    rng = random.Random(62)
    entries = random_entries(rng, 3_000)
    output = build(entries, block_bytes=700)
    order = [full_key_order(entry) for entry in entries]
    for _ in range(300):
        key, epoch = rng.choice(entries)[:2]
        key = rng.choice((key, key[:-1], key + b"\0"))
        epoch = rng.choice((epoch, epoch | 0xFFFF, 0))
        expected = next((e for e, o in zip(entries, order, strict=True) if o >= (key, -epoch)), None)
        assert seek(output, key, epoch) == expected


def test_the_versions_of_a_key_span_two_blocks_and_the_seek_ends_in_the_second():
    key, before, after = (user_key(1, 0, name) for name in (b"m", b"a", b"z"))
    versions = [(key, epoch, b"v" * 50) for epoch in range(80, 0, -2)]
    output = build([(before, 2, b""), *versions, (after, 1, b"")], block_bytes=700)
    boundary = opened(output).index[1]
    assert boundary.first_key == key and 2 < boundary.first_epoch < 78
    between = boundary.first_epoch + 1      # after all of block 0, before all of block 1
    assert opened(output).index.find(key, between) == 0
    assert seek(output, key, between) == (key, boundary.first_epoch, b"v" * 50)
    for epoch in range(2, 81):
        assert seek(output, key, epoch) == (key, epoch & ~1, b"v" * 50)
    assert seek(output, key, 1) == (after, 1, b"")


def test_a_block_holds_one_table_only_and_about_its_target():
    entries = [(user_key(table, 0, b"%05d" % n), 1, b"v" * 50) for table in (1, 2) for n in range(3_000)]
    output = build(entries, block_bytes=8_192)
    meta = opened(output)
    for at, block in enumerate(meta.index):
        assert len({key[:4] for key, _, _ in block_of(output, meta, at)}) == 1
        assert block.raw_size <= 8_192
    assert sum(block.raw_size > 7_500 for block in meta.index) >= len(meta.index) - 2


def test_an_entry_above_the_target_has_a_block_of_its_own():
    sizes = ((b"a", 1), (b"b", 50_000), (b"c", 1))
    entries = [(user_key(1, 0, name), 1, b"v" * size) for name, size in sizes]
    output = build(entries, block_bytes=1_000, codec="none")
    assert [block.rows for block in opened(output).index] == [1, 1, 1]


def test_bytes_that_do_not_shrink_are_stored_as_they_are():
    noise = random.Random(63).randbytes(200_000)
    output = build([(b"%d" % n, 1, noise[n * 20_000:][:20_000]) for n in range(10)], codec="lz4")
    assert {block.codec for block in opened(output).index} == {0}
    assert len(output.data) == output.info.uncompressed_bytes


def codecs_of(values, table_of=lambda number: 1, codec="lz4"):
    """The codec of each block of 16 values."""
    entries = [(user_key(table_of(number // 16), 0, b"%06d" % number), 1, value) for number, value in enumerate(values)]
    output = build(entries, block_bytes=16 * (len(values[0]) + 32), codec=codec)
    return [block.codec for block in opened(output).index], output, entries


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_compresses_behind_noise_is_soon_found(codec):
    rng = random.Random(11)
    values = [rng.randbytes(2_000) for _ in range(16 * 40)] + [b"%02000d" % n for n in range(16 * 40)]
    codecs, output, entries = codecs_of(values, codec=codec)
    first = next(number for number, used in enumerate(codecs) if used)
    assert 38 <= first <= 40 + 4 and 0 not in codecs[first:]
    assert entries_of(output) == entries


def test_repeats_that_a_sample_misses_are_found_later():
    rng = random.Random(12)
    values = []
    for number in range(16 * 120):          # behind block 40, each value of a block repeats one of 16,000 bytes before
        values.append(rng.randbytes(2_000) if number < 640 or number % 16 < 8 else values[number - 8])
    codecs, output, entries = codecs_of(values)
    first = codecs.index(1)
    assert 38 <= first <= 40 + 34 and codecs[first:].count(1) > 40
    assert entries_of(output) == entries


def test_the_first_blocks_of_another_table_are_tried_as_a_whole():
    rng = random.Random(13)
    noise, values = [rng.randbytes(2_000) for _ in range(16 * 10)], []
    for number in range(16 * 10):
        values.append(rng.randbytes(2_000) if number % 16 < 8 else values[number - 8])
    codecs, _, _ = codecs_of(noise + values, lambda block: 1 + block // 10)
    assert codecs == [0] * 10 + [1] * 10


def test_entries_out_of_order_are_refused_with_both_keys():
    for first, second in (((b"b", 1), (b"a", 1)), ((b"a", 1), (b"a", 1)), ((b"a", 1), (b"a", 2))):
        builder = SstableBuilder(StorageOptions(), filter_policy("none"), NAME)
        builder.put(*first, b"")
        with pytest.raises(ValueError, match="is not after"):
            builder.put(*second, b"")


def test_a_file_is_finished_once_and_never_empty():
    builder = SstableBuilder(StorageOptions(), filter_policy("none"), NAME)
    with pytest.raises(ValueError, match="0 entries"):
        builder.finish()
    builder.put(b"a", 1, b"")
    assert builder.size_bytes == 1
    builder.finish()
    with pytest.raises(ValueError, match="finished"):
        builder.finish()
    with pytest.raises(ValueError, match="is finished"):
        builder.put(b"b", 1, b"")


def test_the_filter_knows_every_user_key_and_the_prefixes_of_tables_with_a_rule():
    keys = [user_key(table, 0, b"%02d%04d" % (n // 100, n)) for table in (1, 2) for n in range(1_000)]
    filter = opened(build([(key, 1, b"") for key in keys], prefix_rules={1: PrefixRule(8), 2: None})).filter
    assert all(filter.contains(hash64_of(key)) for key in keys)
    assert all(filter.contains(hash64_of(user_key(1, 0, b"%02d" % n))) for n in range(10))
    assert sum(filter.contains(hash64_of(user_key(2, 0, b"%02d" % n))) for n in range(10)) < 3
    assert sum(filter.contains(hash64_of(user_key(1, 0, b"x%d" % n))) for n in range(1_000)) < 40


def test_versions_of_a_key_count_once_in_the_filter():
    output = build([(b"k", epoch, b"v") for epoch in range(1_000, 0, -1)])
    assert opened(output).filter.size_bytes < 2_000


@pytest.mark.parametrize("policy", ["none", "pybloom"])
def test_other_policies_travel_by_name(policy):
    meta = opened(build([(b"a", 1, b"")], policy=policy))
    assert meta.info.filter_policy == policy
    assert meta.filter is None or meta.filter.contains(hash64_of(b"a"))
