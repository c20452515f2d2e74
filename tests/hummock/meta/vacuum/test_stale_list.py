"""The stale list: no file leaves a version without standing on it, in the same transaction."""

import pytest

from hummock.epoch import Epoch
from hummock.errors import MetaStoreCorrupt
from hummock.meta.records import STALE
from hummock.meta.store.base import NONE, MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.vacuum.stale_list import StaleFiles, freed_for_all, read_stale, stale_row
from hummock.meta.version_log import append, follow, load
from hummock.object_store.memory import MemoryObjectStore
from hummock.version import RunAddition, VersionDelta
from tests.support.worlds.manager_parts import Files, epoch_of, open_manager


@pytest.fixture
def truth():
    """A store whose version 2 holds four files, of ids 1 to 4."""
    truth, files = MemoryMetaStore(), Files()
    manager = open_manager(truth)
    session = manager.claim_writer()
    for number in (1, 2):
        manager.commit_epoch(session, epoch_of(number), [files.make(number, b"a", b"f"), files.make(number, b"g")])
    return truth


def step(truth, removed, added=()):
    position = load(truth, MemoryObjectStore())
    version = position.version
    delta = VersionDelta(version.id + 1, version.max_committed_epoch, Epoch(0), tuple(added), tuple(removed))
    truth.transaction(append(position, delta, position.head.next_file_id, 64)[0])
    return {info.id: info for info in version.sstables}


def test_files_that_leave_are_listed_with_their_bytes_under_the_step(truth):
    before = step(truth, [2, 3])
    (row,) = read_stale(truth)
    assert row.version_id == 3 == follow(truth, load(truth, MemoryObjectStore())).version.id
    assert sorted(row.files) == sorted((before[id_].name, 1_100) for id_ in (2, 3))


def test_a_file_that_moves_does_not_leave(truth):
    version = load(truth, MemoryObjectStore()).version
    moving = {info.id: info for info in version.sstables}[1]
    before = step(truth, [1, 2], [RunAddition(1, 0, (moving,))])
    (row,) = read_stale(truth)
    assert row.files == ((before[2].name, 1_100),)


def test_a_step_that_removes_nothing_lists_nothing(truth):
    version = load(truth, MemoryObjectStore()).version
    assert stale_row(version, VersionDelta(version.id + 1, version.max_committed_epoch, Epoch(0))) == NONE
    assert read_stale(truth) == []


def test_files_are_free_when_every_pin_is_at_or_above_their_step():
    rows = [StaleFiles(version, ()) for version in (3, 5, 8)]
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
    truth = MemoryMetaStore()
    key = StaleFiles(7, ()).key
    truth.transaction(MetaOperations(put={key: row}))
    with pytest.raises(MetaStoreCorrupt, match=key):
        read_stale(truth)


def test_a_key_without_a_number_is_refused():
    truth = MemoryMetaStore()
    truth.transaction(MetaOperations(put={STALE + "x": StaleFiles(7, ()).encode()}))
    with pytest.raises(MetaStoreCorrupt):
        read_stale(truth)
