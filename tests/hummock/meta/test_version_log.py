"""The version log: reads during concurrent appends."""

import pytest

from hummock.errors import MetaStoreCorrupt, MetaStoreError
from hummock.meta.records import DELTAS, HEAD, delta_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.version_log import FEW_DELTAS, FILES_OF_DELTA, NOWHERE, follow
from tests.support.worlds.manager_parts import Files, epoch_of, open_manager


class BusyMetaStore(MemoryMetaStore):
    """Commits `commits` times between a reader's read of the head and its read of the deltas."""

    def __init__(self, commits, checkpoint_deltas):
        self.meta_store, self.commits, self.number = MemoryMetaStore(), commits, 0
        self.manager = open_manager(self.meta_store, checkpoint_deltas=checkpoint_deltas)
        self.session = self.manager.claim_writer()
        self.commit()

    def commit(self):
        self.number += 1
        self.manager.commit_epoch(self.session, epoch_of(self.number), [])

    def get(self, key):
        row = self.meta_store.get(key)
        for _ in range(self.commits if key == HEAD else 0):
            self.commit()
        return row

    def list(self, prefix):
        return self.meta_store.list(prefix)


def test_who_is_overtaken_at_each_read_still_follows():
    store, position = BusyMetaStore(1, 8), NOWHERE
    for _ in range(30):
        before = store.manager.version
        position = follow(store, position)
        assert before.id <= position.version.id < store.manager.version.id
        store.commit()


@pytest.mark.parametrize("behind", [1, FEW_DELTAS, FEW_DELTAS + 1, 40])
def test_who_follows_reads_the_steps_that_are_new(behind):
    store = BusyMetaStore(0, 64)
    known = follow(store, NOWHERE)
    for _ in range(behind):
        store.commit()
    assert follow(store, known).version == store.manager.version


def test_a_step_that_is_missing_is_corruption():
    store = BusyMetaStore(0, 64)
    known = follow(store, NOWHERE)
    for _ in range(3):
        store.commit()
    store.meta_store.transaction(MetaOperations(delete=(delta_key(known.version.id + 2),)))
    for position in (known, NOWHERE):
        with pytest.raises(MetaStoreCorrupt):
            follow(store, position)


def test_many_files_keep_more_steps_before_a_checkpoint():
    store = MemoryMetaStore()
    manager, files = open_manager(store, checkpoint_deltas=2), Files()
    writer = manager.claim_writer()
    manager.commit_epoch(writer, epoch_of(1), [files.make(1) for _ in range(80)])
    most = 0
    for number in range(2, 40):
        manager.commit_epoch(writer, epoch_of(number), [])
        most = max(most, len(store.list(DELTAS)))
    assert most == 80 // FILES_OF_DELTA
    assert follow(store, NOWHERE).version == manager.version


def test_a_checkpoint_that_took_the_steps_is_read_instead():
    store = BusyMetaStore(0, 2)
    known = follow(store, NOWHERE)
    for _ in range(20):
        store.commit()
    assert follow(store, known).version == follow(store, NOWHERE).version == store.manager.version


def test_checkpoints_that_overtake_every_try_end_typed():
    store = BusyMetaStore(2, 1)
    known = follow(store.meta_store, NOWHERE)
    for _ in range(2):
        store.commit()
    with pytest.raises(MetaStoreError, match="overtook"):
        follow(store, known)
