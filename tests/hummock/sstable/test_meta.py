"""Sections of `.meta`: unknown ones are skipped, damage is refused, and two records of a file must agree."""

from dataclasses import replace

import pytest

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption, FormatTooNew
from hummock.sstable import meta as sstable_meta
from hummock.sstable.meta import (
    HEADER,
    SAMPLES_TAIL_BYTES,
    SECTION,
    TRAILER,
    SplitSample,
    SstableMeta,
    decode_samples,
    digest_of,
    encode_meta,
    encode_samples,
    read_sections,
    samples_in_tail,
)
from tests.hummock.sstable.test_builder import build, opened

ENTRIES = [(b"%05d" % n, 1, b"v" * 90) for n in range(20_000)]


def with_section(meta: bytes, tag: int, flags: int, payload: bytes) -> bytes:
    """`meta` with one more section before the split samples."""
    sections_at, (position, *_) = HEADER.size, TRAILER.unpack_from(meta, len(meta) - TRAILER.size)
    head = SECTION.pack(tag, flags, len(payload))
    section = head + payload + crc32c_of(head + payload).to_bytes(4, "little")
    magic, version, count = HEADER.unpack_from(meta)
    header = HEADER.pack(magic, version, count + 1)
    trailer = TRAILER.pack(position + len(section), len(meta) + len(section), version, 0, b"HUMMOCKE")[:20]
    crc = crc32c_of(header + trailer).to_bytes(4, "little")
    return b"".join([header, meta[sections_at:position], section, meta[position:-TRAILER.size], trailer, crc,
                     b"HUMMOCKE"])


def test_unknown_sections_are_skipped_unless_they_are_required():
    output = build(ENTRIES[:10])
    later = with_section(output.meta, 77, 0, b"from the future")
    assert SstableMeta.decode(later, None, "m").info.rows == 10
    assert bytes(read_sections(later, "m")[77]) == b"from the future"
    with pytest.raises(FormatTooNew, match=r"m was made by a newer release \(format 1 with a section 77"):
        SstableMeta.decode(with_section(output.meta, 77, 1, b""), None, "m")
    with pytest.raises(Corruption, match="sections"):
        SstableMeta.decode(with_section(output.meta, 2, 0, b""), None, "m")


def test_a_later_format_version_is_refused(monkeypatch):
    older = build(ENTRIES[:10]).meta
    monkeypatch.setattr(sstable_meta, "FORMAT_VERSION", 2)
    later = build(ENTRIES[:10]).meta
    with pytest.raises(Corruption, match="format version: expected 2, got"):
        SstableMeta.decode(older, None, "m")
    monkeypatch.setattr(sstable_meta, "FORMAT_VERSION", 1)
    with pytest.raises(FormatTooNew, match=r"m was made by a newer release \(format 2, this one reads up to 1\)"):
        SstableMeta.decode(later, None, "m")


def test_a_whole_other_file_is_found_by_its_digest_and_by_its_record():
    one, other = build(ENTRIES[:10]), build([*ENTRIES[:9], (ENTRIES[9][0], 1, b"w" * 90)])
    assert len(one.meta) == len(other.meta)
    with pytest.raises(Corruption, match="digest") as caught:
        SstableMeta.decode(other.meta, one.info, "sst/one.meta")
    assert caught.value.object_name == "sst/one.meta"
    forged = replace(one.info, rows=11)
    with pytest.raises(Corruption, match=r"info: expected \{'rows': 11\}, got \{'rows': 10\}"):
        SstableMeta.decode(one.meta, forged, "m")
    with pytest.raises(Corruption, match="length"):
        SstableMeta.decode(one.meta + b"\0", one.info, "m")


def test_the_version_may_know_more_than_the_file():
    output = build(ENTRIES[:10])
    info = replace(output.info, id=7, global_epoch=5 << 16)
    assert SstableMeta.decode(output.meta, info, "m").info == info


def test_split_samples_are_read_from_the_end_alone():
    output = build(ENTRIES, block_bytes=2_000, codec="none")
    tail = output.meta[-SAMPLES_TAIL_BYTES:]
    samples = samples_in_tail(tail, len(output.meta), "m")
    assert 32 <= len(samples) <= 64
    index = opened(output).index
    for key, offset in samples:
        assert any(block.first_key == key and block.offset == offset for block in index)
    assert len(output.meta) > len(tail)


def test_samples_of_long_keys_fit_into_the_tail():
    output = build([(b"%05d" % n + b"x" * 500, 1, b"") for n in range(2_000)], block_bytes=2_000)
    samples = samples_in_tail(output.meta[-SAMPLES_TAIL_BYTES:], len(output.meta), "m")
    assert len(samples) > 30 and all(len(key) == 64 for key, _ in samples)


def test_a_damaged_tail_is_refused():
    output = build(ENTRIES, block_bytes=2_000)
    size = len(output.meta)
    tail = bytearray(output.meta[-SAMPLES_TAIL_BYTES:])
    position = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)[0] - (size - len(tail))
    for at in range(position, len(tail)):
        if len(tail) - 16 <= at < len(tail) - 8 or (at < len(tail) - 32 and at % 7):
            continue        # the trailer's version and crc32c are checked by readers of the whole
        tail[at] ^= 4
        with pytest.raises(Corruption):
            samples_in_tail(bytes(tail), size, "m")
        tail[at] ^= 4
    for short in (b"", bytes(tail[-31:]), bytes(tail[-40:])):
        with pytest.raises(Corruption):
            samples_in_tail(short, size, "m")


def test_samples_that_do_not_fit_their_section_are_refused():
    payload = encode_samples([SplitSample(b"abc", 7)])
    assert decode_samples(payload, "m") == [(b"abc", 7)]
    for bad in (payload[:-1], payload + b"\0", encode_samples([SplitSample(b"", 0)] * 65)):
        with pytest.raises(Corruption):
            decode_samples(bad, "m")


def test_a_record_that_is_no_record_is_refused():
    output = build(ENTRIES[:10])
    index = bytes(read_sections(output.meta, "m")[2])
    for field, value in (("rows", "ten"), ("rows", -1), ("smallest", "zz"), ("table_ids", 3)):
        record = {**replace(output.info, meta_bytes=0, meta_digest="").to_json(), field: value}

        class Forged:
            def to_json(self, record=record):
                return record

        with pytest.raises(Corruption, match="info"):
            SstableMeta.decode(encode_meta(Forged(), index, b"", b"", []), None, "m")


def test_a_meta_knows_its_digest_and_its_size_in_memory():
    output = build(ENTRIES)
    meta = opened(output)
    assert digest_of(output.meta) == output.info.meta_digest
    assert meta.size_bytes > meta.index.size_bytes + meta.filter.size_bytes
