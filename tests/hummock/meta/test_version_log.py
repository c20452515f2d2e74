"""The version log: reads during concurrent appends."""

import pytest

from hummock.errors import MetaStoreError
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.version_log import NOWHERE, follow
from tests.support.worlds.manager_parts import epoch_of, open_manager


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
        return self.meta_store.get(key)

    def list(self, prefix):
        for _ in range(self.commits):
            self.commit()
        return self.meta_store.list(prefix)


def test_who_is_overtaken_at_each_read_still_follows():
    store, position = BusyMetaStore(1, 8), NOWHERE
    for _ in range(30):
        before = store.manager.version
        position = follow(store, position)
        assert before.id <= position.version.id < store.manager.version.id
        store.commit()


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
