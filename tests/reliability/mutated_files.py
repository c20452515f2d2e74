"""Mutated blocks and metas with valid checksums: only the checks of the decoders can reject them.

    python -m tests.reliability.mutated_files SEED COUNT

runs in 2 GiB of address space. Whatever decodes is then read in every way: results may be wrong, but reads must
terminate and must not crash the process."""

from __future__ import annotations

import random
import resource
import sys
from contextlib import suppress

from hummock.base.checksum import crc32c_of
from hummock.base.table_rules import PrefixRule
from hummock.errors import HummockError
from hummock.options import StorageOptions
from hummock.sstable.block import Block
from hummock.sstable.builder import SstableBuilder, SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.meta import HEADER, SECTION, TRAILER, SstableMeta, read_sections

ADDRESS_SPACE = 2 << 30
INTERESTING = (b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff" * 8, b"\0" * 8)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to four changes: of bits, of numbers, of length, of order."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1) if rng.random() < .5 else rng.randrange(min(len(out), 64) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            what = rng.choice(INTERESTING)
            out[at:at + len(what)] = what
        elif kind == 2:
            del out[at:at + rng.choice((1, 4, 8, 1_000))]
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
        elif kind == 4:
            size = rng.choice((1, 4, 16))
            other = rng.randrange(len(out) + 1)
            out[at:at + size] = out[other:other + size]
        else:
            out[at:at + 4] = rng.randrange(1 << 16).to_bytes(4, "little")
    return bytes(out)


def made(rng: random.Random, codec: str) -> SstableOutput:
    rules = {1: PrefixRule(8)} if rng.random() < .5 else None
    options = StorageOptions(codec=codec, block_bytes=rng.choice((1, 200, 4_000)))
    builder = SstableBuilder(options, filter_policy(rng.choice(("blocked_bloom", "none"))), "0" * 32, rules)
    for row in range(rng.randrange(1, 60)):
        for epoch in range(rng.choice((1, 1, 3)), 0, -1):
            value = rng.choice((None, b"", rng.randbytes(rng.randrange(50))))
            builder.put(b"\0\0\0\1\0\0" + b"%04d" % row, epoch << 16, value)
    return builder.finish()


def read_block(block: Block) -> None:
    rows = [block[row] for row in range(len(block))]
    for key, epoch, _ in (*rows[:3], *rows[-3:], (b"", 0, b""), (b"\xff" * 9, 1, b"")):
        block.find(key, epoch)


def try_block(rng: random.Random, output: SstableOutput, meta: SstableMeta) -> None:
    entry = meta.index[rng.randrange(len(meta.index))]
    stored = bytes(output.data)[entry.offset:entry.offset + entry.size]
    bad = mutated(rng, stored)
    raw_size = entry.raw_size if rng.random() < .7 else rng.choice((0, 1, len(bad), 1 << 20, 1 << 29, (1 << 32) - 1))
    if entry.codec == 0 and rng.random() < .8:
        raw_size = len(bad)
    codec = entry.codec if rng.random() < .95 else rng.randrange(256)
    with suppress(HummockError):
        read_block(Block.decode(bad, codec, raw_size, crc32c_of(bad), "sst/x.data", 0))


def signed(sections: list[tuple[int, int, bytes]]) -> bytes:
    """A `.meta` of these (tag, flags, payload), with valid checksums and lengths."""
    parts = [b"".join((head := SECTION.pack(tag, flags, len(payload)), payload,
                       crc32c_of(head + payload).to_bytes(4, "little"))) for tag, flags, payload in sections]
    header = HEADER.pack(GOOD_HEADER[0], GOOD_HEADER[1], len(parts))
    length = len(header) + sum(map(len, parts)) + TRAILER.size
    samples_at = length - TRAILER.size - (len(parts[-1]) if parts else 0)
    trailer = TRAILER.pack(samples_at, length, GOOD_TRAILER[2], 0, GOOD_TRAILER[4])[:20]
    crc = crc32c_of(header + trailer).to_bytes(4, "little")
    return b"".join((header, *parts, trailer, crc, GOOD_TRAILER[4]))


GOOD = made(random.Random(1), "none")
GOOD_HEADER = HEADER.unpack_from(GOOD.meta)
GOOD_TRAILER = TRAILER.unpack_from(GOOD.meta, len(GOOD.meta) - TRAILER.size)


def try_meta(rng: random.Random, output: SstableOutput) -> None:
    sections = [(tag, 1 if tag < 3 else 0, bytes(payload)) for tag, payload in read_sections(output.meta, "m").items()]
    if rng.random() < .1:
        data = mutated(rng, output.meta)
    else:
        position = rng.randrange(len(sections))
        tag, flags, payload = sections[position]
        sections[position] = (tag, flags, mutated(rng, payload) if rng.random() < .95 else b"[" * 200_000)
        if rng.random() < .05:
            sections.append(rng.choice(sections))
        data = signed(sections)
    try:
        meta = SstableMeta.decode(data, None, "sst/x.meta")
        for number in range(len(meta.index)):
            meta.index[number].first_key        # noqa: B018
        for key in (b"", b"\0\0\0\1\0\x000001", b"\xff" * 20):
            meta.index.find(key, 1 << 16)
    except HummockError:
        pass


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        if number % 100 == 0:
            outputs = [made(rng, codec) for codec in ("none", "none", "lz4", "zstd")]
            metas = [SstableMeta.decode(output.meta, output.info, "m") for output in outputs]
        index = rng.randrange(len(outputs))
        try:
            if number % 4:
                try_block(rng, outputs[index], metas[index])
            else:
                try_meta(rng, outputs[index])
        except BaseException as error:
            error.add_note(f"seed {seed}, mutation {number}")
            raise
    print(f"{count} mutations")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
