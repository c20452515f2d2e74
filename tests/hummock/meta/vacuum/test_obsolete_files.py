"""The obsolete list: a file that leaves a version is listed in the same transaction."""

import pytest

from hummock.epoch import Epoch
from hummock.errors import MetaStoreCorrupt
from hummock.meta.records import OBSOLETE
from hummock.meta.store.base import NONE, MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles, freed_for_all, obsolete_row, read_obsolete
from hummock.meta.version_log import append, follow, load
from hummock.object_store.memory import MemoryObjectStore
from hummock.version import RunAddition, VersionDelta
from tests.support.worlds.manager_parts import Files, epoch_of, open_manager


@pytest.fixture
def meta_store():
    """A meta store whose version 2 holds four files, with ids 1 to 4."""
    meta_store, files = MemoryMetaStore(), Files()
    manager = open_manager(meta_store)
    session = manager.claim_writer()
    for number in (1, 2):
        manager.commit_epoch(session, epoch_of(number), [files.make(number, b"a", b"f"), files.make(number, b"g")])
    return meta_store


def step(meta_store, removed, added=()):
    position = load(meta_store, MemoryObjectStore())
    version = position.version
    delta = VersionDelta(version.id + 1, version.max_committed_epoch, Epoch(0), tuple(added), tuple(removed))
    meta_store.transaction(append(position, delta, position.head.next_file_id, 64)[0])
    return {info.id: info for info in version.sstables}


def test_files_that_leave_are_listed_with_their_bytes_under_the_step(meta_store):
    before = step(meta_store, [2, 3])
    (row,) = read_obsolete(meta_store)
    assert row.version_id == 3 == follow(meta_store, load(meta_store, MemoryObjectStore())).version.id
    assert sorted(row.files) == sorted((before[id_].name, 1_100) for id_ in (2, 3))


def test_a_file_that_moves_does_not_leave(meta_store):
    version = load(meta_store, MemoryObjectStore()).version
    moving = {info.id: info for info in version.sstables}[1]
    before = step(meta_store, [1, 2], [RunAddition(1, 0, (moving,))])
    (row,) = read_obsolete(meta_store)
    assert row.files == ((before[2].name, 1_100),)


def test_a_step_that_removes_nothing_lists_nothing(meta_store):
    version = load(meta_store, MemoryObjectStore()).version
    assert obsolete_row(version, VersionDelta(version.id + 1, version.max_committed_epoch, Epoch(0))) == NONE
    assert read_obsolete(meta_store) == []


def test_files_are_free_when_every_pin_is_at_or_above_their_step():
    rows = [ObsoleteFiles(version, ()) for version in (3, 5, 8)]
    assert [row.version_id for row in freed_for_all(rows, 5)] == [3, 5]
    assert freed_for_all(rows, 2) == [] and freed_for_all(rows, None) == rows


NAME = b"a" * 32
DAMAGED = [
    b"", b"[]", b"null", b"{}", b'{"format":0,"files":[]}', b'{"format":1}', b'{"format":1,"files":5}',
    b'{"format":1,"files":[["../etc",1]]}', b'{"format":1,"files":[["ab",1]]}', b'{"format":1,"files":[[7,1]]}',
    b'{"format":1,"files":[["%b"]]}' % NAME, b'{"format":1,"files":[["%b","x"]]}' % NAME, b"[" * 100_000,
]


@pytest.mark.parametrize("row", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_row_is_refused_by_its_key(row):
    meta_store = MemoryMetaStore()
    key = ObsoleteFiles(7, ()).key
    meta_store.transaction(MetaOperations(put={key: row}))
    with pytest.raises(MetaStoreCorrupt, match=key):
        read_obsolete(meta_store)


def test_a_key_without_a_number_is_refused():
    meta_store = MemoryMetaStore()
    meta_store.transaction(MetaOperations(put={OBSOLETE + "x": ObsoleteFiles(7, ()).encode()}))
    with pytest.raises(MetaStoreCorrupt):
        read_obsolete(meta_store)
