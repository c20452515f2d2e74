"""FORMAT.md matches the code: its example decodes, equals the builder's output, and its hash vectors hold."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import hummock
from hummock.base.checksum import hash64_of
from hummock.base.key import user_key
from hummock.options import StorageOptions
from hummock.sstable.builder import SstableBuilder, SstableOutput
from hummock.sstable.filter.policy import filter_policy
from hummock.sstable.meta import SstableMeta, digest_of, samples_in_tail
from tests.hummock.oracle_block import decode_payload
from tests.hummock.oracle_hash import content_hash
from tests.hummock.sstable.test_builder import block_of, build, entries_of, random_entries

FORMAT = (Path(hummock.__file__).parent / "sstable" / "FORMAT.md").read_text()
GOLDEN = Path(__file__).parents[1] / "golden"
EXAMPLE = [
    (user_key(1, 0, b"a"), 0x20000, None), (user_key(1, 0, b"a"), 0x10000, b"1"),
    (user_key(1, 0, b"b"), 0x20000, b"3"), (user_key(1, 0, b"b"), 0x10000, b"2"),
]


def example_bytes(title: str) -> bytes:
    """The hex columns under a title of the section "An example"."""
    section = FORMAT.split("## An example")[1].split(f"`{title}`:\n")[1]
    out = b""
    for line in section.strip("\n").splitlines():
        found = re.match(r"    ([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", line[:58])
        if found is None:
            break
        assert int(found[1], 16) == len(out)
        out += bytes.fromhex(found[2])
    return out


def test_the_example_decodes_to_its_entries():
    data, meta = example_bytes(".data"), example_bytes(".meta")
    assert decode_payload(data) == EXAMPLE
    opened = SstableMeta.decode(meta, None, "example")
    assert (opened.info.rows, opened.info.stale_rows, opened.info.tombstones) == (4, 2, 1)
    assert opened.info.meta_digest == digest_of(meta) and digest_of(meta) in FORMAT
    assert opened.info.content_hash == content_hash(EXAMPLE)
    assert opened.filter.contains(hash64_of(user_key(1, 0, b"a")))
    assert samples_in_tail(meta[-100:], len(meta), "example") == []


def test_the_example_is_what_the_builder_writes():
    builder = SstableBuilder(
        StorageOptions(codec="none"), filter_policy("blocked_bloom"), "00112233445566778899aabbccddeeff")
    for entry in EXAMPLE:
        builder.put(*entry)
    output = builder.finish()
    assert bytes(output.data) == example_bytes(".data")
    assert bytes(output.meta) == example_bytes(".meta")


def test_the_hash_vectors_hold():
    vectors = re.findall(r"^\| (\(empty\)|[0-9a-f]+) \| ([0-9a-f]{16}) \|$", FORMAT, re.MULTILINE)
    assert len(vectors) >= 8
    for key, expected in vectors:
        assert hash64_of(b"" if key == "(empty)" else bytes.fromhex(key)) == int(expected, 16)


def test_the_vectors_of_the_content_hash_hold():
    def data_of(text):
        return b"" if text == "(empty)" else bytes.fromhex(text)

    vectors = re.findall(r"^\| (\S+) \| ([0-9a-f]+) \| (\S+) \| ([0-9a-f]{16}) \|$", FORMAT, re.MULTILINE)
    assert len(vectors) == 9
    for key, epoch, value, expected in vectors:
        row = data_of(key), int(epoch, 16), None if value == "delete" else data_of(value)
        assert build([row]).info.content_hash == content_hash([row]) == int(expected, 16)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_files_written_by_the_first_version_are_read(codec):
    """Golden files: a change that makes one of these fail makes stores unreadable."""
    data, meta = ((GOLDEN / f"{codec}.{part}").read_bytes() for part in ("data", "meta"))
    output = SstableOutput("golden", data, meta, SstableMeta.decode(meta, None, "golden").info)
    expected = random_entries(random.Random(81), 300)
    assert entries_of(output) == expected
    assert len(block_of(output, SstableMeta.decode(meta, output.info, "golden"), 0)) > 1
    if codec == "none":
        built = build(expected, codec="none", block_bytes=4_096)
        same = replace(built.info, content_hash=None, name=output.info.name, meta_bytes=output.info.meta_bytes,
                       meta_digest=output.info.meta_digest)
        assert (bytes(built.data), same) == (data, output.info)
