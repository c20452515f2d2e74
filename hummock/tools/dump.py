"""Describes a file as text, for the command line: its record, its blocks and optionally its entries; exports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from hummock.base.codec import CODEC_NAMES
from hummock.base.key import table_id_of, vnode_of
from hummock.epoch import SPILL_MASK, pure_epoch
from hummock.iterator.entry_collector import EntryCollector
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.sstable.block import Block
from hummock.sstable.index import BlockMeta
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SAMPLES, SstableMeta, decode_samples, read_sections
from hummock.sstable.sstable_iterator import SstableIterator
from hummock.sstable.store import SstableStore

SHOWN_BYTES = 32        # of a key or value
EXPORT_SCHEMA = pa.schema({"key": pa.binary(), "epoch": pa.uint64(), "value": pa.binary()})


def describe(meta: bytes, object_name: str, data: bytes | None = None, entries: int = 0) -> Iterator[str]:
    """Lines that describe the file whose `.meta` holds `meta`.

    With `data`, its whole `.data`, every block is read and checked and the first `entries` entries are shown. Raises
    Corruption if either is damaged.
    """
    opened = SstableMeta.decode(meta, None, object_name)
    yield from describe_info(opened.info)
    filter_bytes = opened.filter.size_bytes if opened.filter is not None else 0
    samples = decode_samples(read_sections(meta, object_name).get(SAMPLES, b""), object_name)
    yield f"filter         {opened.info.filter_policy}, {filter_bytes:,} bytes in memory"
    yield f"split samples  {len(samples)}"
    yield ""
    yield "block      offset     stored    payload    rows  codec  crc32c    first key"
    yield from (describe_block(at, opened.index[at]) for at in range(len(opened.index)))
    if data is not None:
        yield ""
        yield from describe_entries(opened, data, object_name, entries)


def describe_info(info: SstableInfo) -> Iterator[str]:
    """The record, one line per fact."""
    ratio = info.uncompressed_bytes / max(1, info.data_bytes)
    yield f"name           {info.name}  (format {info.format_version})"
    yield f"keys           {shown_key(info.smallest)}  ..  {shown_key(info.largest)}"
    yield f"entries        {info.rows:,}: {info.stale_rows:,} stale, {info.tombstones:,} deletes"
    if info.content_hash is not None:
        yield f"content hash   {info.content_hash:016x}"
    yield f"tables         {', '.join(map(str, info.table_ids))}"
    yield f"epochs         {shown_epoch(info.oldest_epoch)}  ..  {shown_epoch(info.newest_epoch)}"
    yield f".data          {info.data_bytes:,} bytes, {info.codec}, {ratio:.2f} to 1"
    yield f".meta          {info.meta_bytes:,} bytes, digest {info.meta_digest}"


def describe_block(at: int, block: BlockMeta) -> str:
    """One row of the block table."""
    return (f"{at:>5}  {block.offset:>10,} {block.size:>10,} {block.raw_size:>10,} {block.rows:>7,}  "
            f"{CODEC_NAMES[block.codec]:<5}  {block.checksum:08x}  {shown_key(block.first_key)} "
            f"@ {shown_epoch(block.first_epoch)}")


def describe_entries(meta: SstableMeta, data: bytes, object_name: str, entries: int) -> Iterator[str]:
    """Reads every block; shows the first `entries` entries and reports that all blocks are intact."""
    left = entries
    for at, stored in enumerate(meta.index):
        block = Block.decode(
            data[stored.offset:stored.offset + stored.size], stored.codec, stored.raw_size, stored.checksum,
            object_name, at)
        for row in range(min(left, len(block))):
            key, epoch, value = block[row]
            yield f"{shown_key(key)} @ {shown_epoch(epoch)}  =>  {shown_value(value)}"
        left -= min(left, len(block))
    yield f"{len(meta.index):,} blocks and {meta.info.rows:,} entries are as written"


def export_entries(objects: ObjectStore, meta: bytes, object_name: str, target: Path) -> int:
    """Writes all entries of the file to an Arrow IPC file, batch by batch; how many. A delete's value is null.

    Raises Corruption naming the object, or OSError if `target` cannot be written; it then holds the entries before.
    """
    info = SstableMeta.decode(meta, None, object_name).info
    collector = EntryCollector(SstableIterator(SstableStore(objects, StorageOptions()), info))
    rows = 0
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, EXPORT_SCHEMA) as writer:
        while (entries := collector.next_batch()) is not None:
            keys, values, epochs = entries
            writer.write(pa.record_batch([pa.array(keys), pa.array(epochs), pa.array(values)], schema=EXPORT_SCHEMA))
            rows += len(keys)
    return rows


def shown_key(key: bytes) -> str:
    """Table id, vnode and table key of a user key."""
    return f"{table_id_of(key)}/{vnode_of(key)}/{shown_bytes(key[6:])}"


def shown_epoch(epoch: int) -> str:
    """Milliseconds of an epoch, and the flush within it if that is not the first."""
    spill = f"+{epoch & SPILL_MASK}" if epoch & SPILL_MASK else ""
    return f"{pure_epoch(epoch) >> 16}{spill}"


def shown_value(value: bytes | None) -> str:
    """A value in hex, or the word for a delete."""
    return "delete" if value is None else f"{len(value)} bytes {shown_bytes(value)}".rstrip()


def shown_bytes(data: bytes) -> str:
    """The first bytes in hex."""
    return data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")
