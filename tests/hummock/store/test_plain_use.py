"""The first things that somebody tries who knows other key-value stores."""

from contextlib import closing

import pytest

import hummock
from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import InvalidWriteBatch, StoreNotFound, UnknownOption

A, B, C = (hummock.user_key(1, 0, key) for key in (b"a", b"b", b"c"))


def ingested(store, pairs):
    epoch = hummock.EpochGenerator(last=store.committed_epoch).next()
    store.ingest_batch(WriteBatch(pairs), epoch)
    return epoch


@pytest.mark.parametrize("opened", [lambda: hummock.open("memory://"), hummock.MemoryStateStore])
def test_reads_without_an_epoch_are_at_the_committed_one(opened):
    with closing(opened()) as store:
        assert (store.get(A), list(store.get_many([A])), list(store.scan())) == (None, [None], [])
        store.commit(ingested(store, [(A, b"1"), (C, b"3")]))
        above = ingested(store, [(A, b"2"), (B, b"2")])
        assert store.get(A, above) == b"2"
        assert (store.get(A), store.get(B), list(store.get_many([C, B]))) == (b"1", None, [b"3", None])
        assert list(store.scan()) == [(A, b"1"), (C, b"3")]
        assert list(store.scan(KeyRange(B), reverse=True, limit=1)) == [(C, b"3")]
        store.commit(above)
        assert (store.get(A), len(list(store.scan()))) == (b"2", 3)


def test_a_reader_without_an_epoch_reads_what_it_knows_to_be_committed(tmp_path):
    with hummock.open(tmp_path / "store", role="writer") as writer:
        writer.write({A: b"1"})
        with hummock.open(tmp_path / "store") as reader:
            assert reader.get(A) == b"1"
            reader.wait_epoch(writer.write({A: b"2"}))
            assert (reader.get(A), list(reader.scan())) == (b"2", [(A, b"2")])


def test_a_dict_is_written_whatever_its_order_and_None_deletes():
    with hummock.open("memory://") as store:
        store.write({C: b"3", A: b"1", B: b"2"})
        store.write({C: None, A: b"11"})
        assert list(store.scan()) == [(A, b"11"), (B, b"2")]
        store.write({})
        assert len(list(store.scan())) == 2
        with pytest.raises(InvalidWriteBatch):
            WriteBatch([(B, b"1"), (A, b"1")])


@pytest.mark.parametrize("rows", [[(A, b"1")], b"a", None])
def test_what_is_no_batch_is_named(rows):
    with hummock.open("memory://") as store, pytest.raises(TypeError, match=r"not a (list|bytes|NoneType): WriteBatch"):
        store.write(rows)


def test_a_mistyped_path_and_options_of_other_stores_say_what_to_write(tmp_path):
    with pytest.raises(StoreNotFound, match=r'hummock\.open\(…, role="writer"\)'):
        hummock.open(tmp_path / "nothing")
    for name in ("create", "create_if_missing"):
        with pytest.raises(UnknownOption, match='role="writer"'):
            hummock.open(tmp_path / "nothing", **{name: True})
    with pytest.raises(UnknownOption, match='role="reader"'):
        hummock.open(tmp_path / "nothing", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_completion_offers_what_is_public():
    assert sorted(dir(hummock)) == sorted(hummock.__all__)


@pytest.mark.parametrize("name, meant", [
    ("put", r"write\(\{key: value\}\)"),
    ("delete", r"write\(\{key: None\}\)"), ("keys", r"scan\(\)"), ("flush", "commit")])
def test_names_of_other_stores_lead_to_those_of_this_one(name, meant):
    with hummock.open("memory://") as store:
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; here it is {meant}"):
            getattr(store, name)
        assert not hasattr(store, "nothing")


def test_scans_and_stores_show_their_state():
    with hummock.open("memory://") as store:
        store.write({A: b"1"})
        scan, left = store.scan(), store.scan()
        assert repr(scan) == "HummockScan(open)"
        assert (list(scan), repr(scan)) == ([(A, b"1")], "HummockScan(at its end)")
        left.close()
        assert repr(left) == "HummockScan(closed)"
    assert repr(hummock.MemoryStateStore()) == "MemoryStateStore(0 keys, epoch 0)"
    assert repr(hummock.EpochGenerator(last=1 << 16)) == "EpochGenerator(last=65536)"
