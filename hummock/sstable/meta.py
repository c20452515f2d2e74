"""SstableMeta: the metadata of a file in memory, and the format of `<name>.meta`.

Layout (little endian):

    header    magic "HUMMOCKM" | u32 format version | u32 number of sections                16 bytes
    sections  u32 tag | u32 flags (1: required) | u64 length | payload | u32 crc32c of all that
    trailer   u64 position of the split samples | u64 length of the whole .meta | u32 format version
              u32 crc32c of header and the 20 bytes before | magic "HUMMOCKE"               32 bytes

Unknown sections are skipped unless they are required. The split samples are the last section and the trailer has a
fixed size, so one small GET at the end of the object reads them. Every byte is covered by a checksum, and the whole by
the digest in SstableInfo.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from hummock.base.checksum import crc32c_of
from hummock.base.json_fields import MALFORMED
from hummock.errors import Corruption, FormatTooNew
from hummock.sstable.filter.policy import Filter, load_filter
from hummock.sstable.index import SstableIndex
from hummock.sstable.info import FORMAT_VERSION, SstableInfo

HEADER = struct.Struct("<8sII")
SECTION = struct.Struct("<IIQ")
TRAILER = struct.Struct("<QQII8s")
SAMPLE = struct.Struct("<QI")
HEADER_MAGIC, TRAILER_MAGIC = b"HUMMOCKM", b"HUMMOCKE"

REQUIRED = 1
INFO, INDEX, FILTER, SAMPLES, HASHES, PIECES = 1, 2, 3, 4, 7, 8     # tags; 5 and 6 are reserved
MOST_SECTIONS = 1_000
MOST_SAMPLES = 64
SAMPLE_KEY_BYTES = 64                           # split keys are truncated to this; any bytes can split user keys
SAMPLES_TAIL_BYTES = 8_192                      # the end of any .meta contains its split samples


class SplitSample(NamedTuple):
    """About `data_offset` bytes of `.data` hold user keys below `key`."""

    key: bytes
    data_offset: int


@dataclass(frozen=True, slots=True)
class SstableMeta:
    """One opened file: its record, its block index, and its filter if it has one."""

    info: SstableInfo
    index: SstableIndex
    filter: Filter | None

    @property
    def size_bytes(self) -> int:
        """Memory held, for cache accounting."""
        return self.index.size_bytes + (self.filter.size_bytes if self.filter is not None else 0) + 1_024

    @classmethod
    def decode(cls, data: bytes, info: SstableInfo | None, object_name: str) -> SstableMeta:
        """The `.meta` in `data`, all of it checked.

        `info` is the version's record of the file; None: trusts the file's own. Raises Corruption, naming the object,
        if a checksum, a length or the two records differ.
        """
        info, index, sections = _decode(data, info, object_name)
        if PIECES in sections:
            index.set_piece_checksums(sections[PIECES], object_name)
        return cls(info, index, load_filter(info.filter_policy, sections.get(FILTER, b""), object_name))


def decode_index(data: bytes | memoryview, info: SstableInfo, object_name: str) -> SstableIndex:
    """The index in a `.meta`, checked as by `SstableMeta.decode`, with block hashes but without decoding the filter."""
    return _decode(data, info, object_name, with_hashes=True)[1]


def digest_of(data: bytes | memoryview) -> str:
    """blake2b-128 in hex: the digest of a whole `.meta` as in SstableInfo."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode_meta(info: SstableInfo, index: bytes, filter: bytes, hashes: bytes, samples: Sequence[SplitSample],
                piece_checksums: bytes = b"") -> bytes:
    """The bytes of `.meta`. `info` has no `meta_bytes` and `meta_digest` yet; `hashes`: u64 of each block;
    `piece_checksums`: u32 of each piece of the blocks stored verbatim.
    """
    sections = [
        (INFO, REQUIRED, json.dumps(info.to_json(), sort_keys=True, separators=(",", ":")).encode()),
        (INDEX, REQUIRED, index),
        *([(FILTER, 0, filter)] if filter else []),
        *([(HASHES, 0, hashes)] if hashes else []),
        *([(PIECES, 0, piece_checksums)] if piece_checksums else []),
        (SAMPLES, 0, encode_samples(samples)),
    ]
    parts = [HEADER.pack(HEADER_MAGIC, FORMAT_VERSION, len(sections))]
    for tag, flags, payload in sections:
        head = SECTION.pack(tag, flags, len(payload))
        parts += [head, payload, crc32c_of(payload, crc32c_of(head)).to_bytes(4, "little")]
    samples_at = sum(map(len, parts[:-3]))
    length = sum(map(len, parts)) + TRAILER.size
    trailer = TRAILER.pack(samples_at, length, FORMAT_VERSION, 0, TRAILER_MAGIC)[:20]
    crc = crc32c_of(trailer, crc32c_of(parts[0]))
    return b"".join([*parts, trailer, crc.to_bytes(4, "little"), TRAILER_MAGIC])


def read_sections(data: bytes | memoryview, object_name: str) -> dict[int, memoryview]:
    """Payloads by tag. Raises Corruption if any byte is damaged, FormatTooNew for unknown required sections."""
    if len(data) < HEADER.size + TRAILER.size:
        raise Corruption(object_name, "length", f"at least {HEADER.size + TRAILER.size} bytes", len(data))
    magic, version, count = HEADER.unpack_from(data)
    _, length, end_version, crc, end_magic = TRAILER.unpack_from(data, len(data) - TRAILER.size)
    if magic != HEADER_MAGIC or end_magic != TRAILER_MAGIC:
        raise Corruption(object_name, "magic", HEADER_MAGIC + TRAILER_MAGIC, magic + end_magic)
    got = crc32c_of(data[-TRAILER.size:-12], crc32c_of(data[:HEADER.size]))
    if got != crc:
        raise Corruption(object_name, "crc32c of header and trailer", crc, got)
    if version == end_version > FORMAT_VERSION:
        raise FormatTooNew(object_name, version, FORMAT_VERSION)
    if version != FORMAT_VERSION or end_version != FORMAT_VERSION:
        raise Corruption(object_name, "format version", FORMAT_VERSION, (version, end_version))
    if length != len(data) or count > MOST_SECTIONS:
        raise Corruption(object_name, "length", length, len(data))
    sections, at = {}, HEADER.size
    for _ in range(count):
        tag, flags, payload, at = read_section(data, at, len(data) - TRAILER.size, object_name)
        if tag in sections:
            raise Corruption(object_name, "sections", "each once", tag)
        if flags & REQUIRED and tag not in (INFO, INDEX, FILTER, SAMPLES, HASHES, PIECES):
            raise FormatTooNew(object_name, f"{version} with a section {tag}", FORMAT_VERSION)
        sections[tag] = payload
    if at != len(data) - TRAILER.size:
        raise Corruption(object_name, "end of the sections", len(data) - TRAILER.size, at)
    return sections


def read_section(data: bytes | memoryview, at: int, end: int, object_name: str) -> tuple[int, int, memoryview, int]:
    """(tag, flags, payload, position after it) of the section at `at`, which must end before `end`."""
    if at + SECTION.size + 4 > end:
        raise Corruption(object_name, f"section at {at}", f"{SECTION.size + 4} bytes", end - at)
    tag, flags, length = SECTION.unpack_from(data, at)
    stop = at + SECTION.size + length
    if stop + 4 > end:
        raise Corruption(object_name, f"length of the section at {at}", f"at most {end - at}", length)
    expected = int.from_bytes(data[stop:stop + 4], "little")
    got = crc32c_of(memoryview(data)[at:stop])
    if got != expected:
        raise Corruption(object_name, f"crc32c of the section at {at}", expected, got)
    return tag, flags, memoryview(data)[at + SECTION.size:stop], stop + 4


def encode_samples(samples: Iterable[SplitSample]) -> bytes:
    """u64 data offset | u32 key length | key, for each sample."""
    return b"".join(SAMPLE.pack(offset, len(key)) + key for key, offset in samples)


def decode_samples(payload: bytes | memoryview, object_name: str) -> list[SplitSample]:
    """The split samples in a section's payload."""
    samples: list[SplitSample] = []
    at = 0
    while at < len(payload):
        if len(samples) == MOST_SAMPLES or at + SAMPLE.size > len(payload):
            raise Corruption(object_name, "split samples", f"at most {MOST_SAMPLES}", len(samples))
        offset, size = SAMPLE.unpack_from(payload, at)
        at += SAMPLE.size + size
        if at > len(payload):
            raise Corruption(object_name, "key of a split sample", len(payload), at)
        samples.append(SplitSample(bytes(payload[at - size:at]), offset))
    return samples


def samples_in_tail(tail: bytes, meta_bytes: int, object_name: str) -> list[SplitSample]:
    """The split samples of a `.meta` of `meta_bytes`, from its last SAMPLES_TAIL_BYTES (or all of it)."""
    if len(tail) < TRAILER.size:
        raise Corruption(object_name, "trailer", TRAILER.size, len(tail))
    position, length, _, _, magic = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    start = position - (meta_bytes - len(tail))
    if magic != TRAILER_MAGIC or length != meta_bytes or not 0 <= start < len(tail):
        raise Corruption(object_name, "trailer", meta_bytes, (magic, length, position))
    tag, _, payload, _ = read_section(tail, start, len(tail) - TRAILER.size, object_name)
    if tag != SAMPLES:
        raise Corruption(object_name, "tag of the split samples", SAMPLES, tag)
    return decode_samples(payload, object_name)


def _decode(
    data: bytes | memoryview, info: SstableInfo | None, object_name: str, *, with_hashes: bool = False
) -> tuple[SstableInfo, SstableIndex, dict[int, memoryview]]:
    """The record, the index and the payloads of all sections."""
    if info is not None:
        _check_digest(data, info, object_name)
    sections = read_sections(data, object_name)
    for tag in (INFO, INDEX):
        if tag not in sections:
            raise Corruption(object_name, "sections", f"section {tag}", sorted(sections))
    own = _decode_info(sections[INFO], object_name)
    if info is not None:
        _check_same_file(own, info, object_name)
    else:
        info = replace(own, meta_bytes=len(data), meta_digest=digest_of(data))
    index = SstableIndex.decode(sections[INDEX], object_name, info.data_bytes, info.rows)
    if with_hashes and info.content_hash is not None and HASHES in sections:
        index.set_hashes(sections[HASHES], info.content_hash, object_name)
    if info.global_epoch:
        index.override_epochs(info.global_epoch, object_name)
    return info, index, sections


def _check_digest(data: bytes | memoryview, info: SstableInfo, object_name: str) -> None:
    if len(data) != info.meta_bytes:
        raise Corruption(object_name, "length", info.meta_bytes, len(data))
    got = digest_of(data)
    if got != info.meta_digest:
        raise Corruption(object_name, "digest", info.meta_digest, got)


def _check_same_file(own: SstableInfo, info: SstableInfo, object_name: str) -> None:
    """Raises Corruption unless the file's own record equals the version's, except fields that only the latter knows."""
    own = replace(own, id=info.id, global_epoch=info.global_epoch, meta_bytes=info.meta_bytes,
                  meta_digest=info.meta_digest, inline_data=info.inline_data)
    if own != info:
        ours, theirs = asdict(own), asdict(info)
        differing = {name for name in ours if ours[name] != theirs[name]}
        raise Corruption(
            object_name, "info", {name: theirs[name] for name in differing},
            {name: ours[name] for name in differing})


def _decode_info(payload: memoryview, object_name: str) -> SstableInfo:
    try:
        return SstableInfo.from_json(json.loads(bytes(payload)))
    except MALFORMED as error:
        raise Corruption(object_name, "info", "the record of an sstable", repr(error)) from error
