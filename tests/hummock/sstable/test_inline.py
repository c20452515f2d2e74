"""Inline files: the record has what the objects would have, every reader finds it, and no older release misreads it."""

import json
from dataclasses import replace

import pytest

from hummock.columnar.write_batch import WriteBatch
from hummock.errors import Corruption, FormatTooNew, ObjectNotFound
from hummock.meta.records import decode_value, encode_value
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.sstable.info import SstableInfo, record_format
from hummock.sstable.inline import InlineObjects, inlined_or_stored, objects_of, with_inline
from hummock.sstable.store import SstableStore
from hummock.tools.verify import verify_sstable
from hummock.version import HummockVersion, Level, Run, VersionDelta
from tests.support.suites.object_store_suite import ObjectStoreSuite
from tests.support.worlds.inline_files import inline_info
from tests.support.worlds.manager_parts import Files, epoch_of


@pytest.fixture
def info():
    """A real inline file with three rows of one key each."""
    return inline_info(WriteBatch([(b"%06d" % key, b"value") for key in range(3)]), epoch_of(1))


def test_the_documented_example():
    info = Files().make(1, data_bytes=2, meta_bytes=3, inline_data=b"ddmmm")
    record = info.to_json()
    assert (record["inline_data"], record["data_bytes"], record["meta_bytes"]) == ("ZGRtbW0=", 2, 3)
    assert SstableInfo.from_json(record) == info
    assert objects_of(info) == ((f"sst/{info.name}.data", b"dd"), (f"sst/{info.name}.meta", b"mmm"))


@pytest.mark.parametrize("text", ["ZGRtbW0", "ZGRtbQ==", "ZGRtbW1t", "?GRtbW0=", 5])
def test_a_record_whose_data_are_cut_or_longer_is_refused(text):
    record = Files().make(1, data_bytes=2, meta_bytes=3, inline_data=b"ddmmm").to_json()
    with pytest.raises((ValueError, TypeError)):
        SstableInfo.from_json({**record, "inline_data": text})


def test_only_records_with_inline_files_have_the_new_format(info):
    stored = Files().make(1, id=1)
    assert record_format({}, [stored]) == 1 and record_format({}, [stored, info]) == 3
    version = HummockVersion(1, epoch_of(1), levels=(Level(0, (Run(2, (replace(info, id=2),)), Run(1, (stored,)))),))
    row = encode_value(version)
    assert json.loads(row)["format"] == 3 and decode_value(HummockVersion, "k", row) == version
    assert version.inline_bytes == info.stored_bytes and list(version.stored_files) == [stored]
    with pytest.raises(FormatTooNew):
        decode_value(HummockVersion, "k", row.replace(b'"format":3', b'"format":4'))
    assert json.loads(encode_value(VersionDelta(1, epoch_of(1), epoch_of(0))))["format"] == 1


def test_a_reader_needs_no_object(info):
    store = SstableStore(MemoryObjectStore(), StorageOptions())
    assert [entry[0] for entry in store.block(info, 0)] == [b"%06d" % key for key in range(3)]


def test_verification_finds_each_changed_byte(info):
    assert not any(one.damages for one in verify_sstable(info, MemoryObjectStore()))
    for position in range(len(info.inline_data)):
        data = bytearray(info.inline_data)
        data[position] ^= 1
        found = verify_sstable(replace(info, inline_data=bytes(data)), MemoryObjectStore())
        assert any(one.damages and info.name in one.path for one in found), position


def test_damage_is_named_by_every_read(info):
    data = bytearray(info.inline_data)
    data[5] ^= 1
    store = SstableStore(MemoryObjectStore(), StorageOptions())
    with pytest.raises(Corruption, match=info.name):
        store.block(replace(info, inline_data=bytes(data)), 0)


def test_files_beyond_the_limit_are_stored(info):
    (data_path, data), (meta_path, meta) = objects_of(info)
    built, store = MemoryObjectStore(), MemoryObjectStore()
    built.put(data_path, data)
    built.put(meta_path, meta)
    plain = replace(info, inline_data=b"")
    assert inlined_or_stored([plain], built, store, info.stored_bytes) == [info] and list(store.list()) == []
    assert inlined_or_stored([plain], built, store, info.stored_bytes - 1) == [plain]
    assert (store.get(data_path), store.get(meta_path)) == (data, meta)


def test_one_store_for_inline_and_stored_files(info):
    below = MemoryObjectStore()
    below.put("sst/other", b"0123")
    assert with_inline(below, [Files().make(1)]) is below
    objects = with_inline(below, [info])
    (data_path, data), (meta_path, meta) = objects_of(info)
    assert objects.get(data_path) == data and objects.get(meta_path, range(2, 5)) == meta[2:5]
    assert objects.get("sst/other") == b"0123" and objects.head(data_path).size_bytes == len(data)
    memory = bytearray(len(data) + 9)
    assert objects.get_into(data_path, 1, memoryview(memory)) == len(data) - 1
    assert memory[:len(data) - 1] == data[1:]
    assert not objects.forget(data_path) and objects.open_file(data_path) is None
    assert [found.path for found in objects.list()] == ["sst/other"]
    with pytest.raises(ObjectNotFound):
        objects.get("sst/none")


class TestInlineObjects(ObjectStoreSuite):
    @pytest.fixture
    def store(self, info):
        return InlineObjects(MemoryObjectStore(), [info])
