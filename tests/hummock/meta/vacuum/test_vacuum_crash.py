"""Vacuum interrupted before, during and after each of its calls: the store is correct, the next run completes it."""

import pytest

from hummock.errors import HummockError
from hummock.meta.records import OBSOLETE, UPLOADS, VACUUMED
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.vacuum_world import LEASE_MS, VacuumWorld, names

KINDS = [FaultKind.BEFORE, FaultKind.TORN, FaultKind.AFTER]


class Scene:
    """A store with files of every `Need`, and a vacuum that a fault plan can interrupt."""

    def __init__(self):
        self.world = world = VacuumWorld()
        world.commit_new(2)
        dead = world.process()                      # a process that died with a pin and an upload
        dead.pin_version("dead")
        self.orphans = [world.upload(name="ab" * 16), world.upload(name="cd" * 16)]
        dead.register_upload("dead", "ab" * 8)
        world.replace()
        world.clock.advance(LEASE_MS)
        world.commit_new(3)
        self.reader = world.process()
        self.pinned = names(self.reader.pin_version("reader"))
        world.replace()
        world.commit_new()
        world.manager.renew_lease("writer")
        self.staged = world.upload(b"s")
        self.plan = FaultPlan()
        self.vacuum = world.vacuum(FaultyMetaStore(world.meta_store, self.plan),
                                   FaultyObjectStore(world.objects, self.plan), page_files=2, deleted_at_once=3)
        self.calls_before = len(self.plan.calls)

    def needed(self):
        return names(self.world.process().version) | self.pinned | {self.staged.name}

    def check_clean(self):
        world = self.world
        assert world.stored == self.needed() and len(world.paths) == 2 * len(self.needed())
        assert {key.removeprefix(VACUUMED) for key, _ in world.meta_store.list(VACUUMED)} == {"ab" * 16, "cd" * 16}
        assert len(world.meta_store.list(OBSOLETE)) == 1 and len(world.meta_store.list(UPLOADS)) == 1


def calls_of_a_run():
    scene = Scene()
    scene.vacuum.run()
    scene.check_clean()
    return scene.plan.calls[scene.calls_before:]


CALLS = calls_of_a_run()


def test_the_scene_takes_every_step():
    operations = [(operation, path.rpartition("/")[0]) for operation, path in CALLS]
    assert operations.count(("delete", "sst")) >= 4 and operations.count(("list", "sst")) == 1
    assert sum(operation == "transaction" for operation, _ in operations) >= 4


@pytest.mark.parametrize("kind", KINDS, ids=[kind.value for kind in KINDS])
@pytest.mark.parametrize("at", range(len(CALLS)))
def test_an_end_at_any_call_leaves_a_right_store(at, kind):
    scene = Scene()
    scene.plan.add(Fault(kind, skip=at))
    with pytest.raises(HummockError, match="injected"):
        scene.vacuum.run()
    assert scene.plan.hits == 1
    assert scene.needed() <= scene.world.stored
    scene.world.vacuum().run()                      # a new process
    scene.check_clean()
    scene.world.commit(scene.staged)
    assert scene.needed() <= scene.world.stored


def test_the_same_vacuum_goes_on_after_any_error():
    for at in range(len(CALLS)):
        scene = Scene()
        scene.plan.add(Fault(FaultKind.BEFORE, skip=at))
        with pytest.raises(HummockError):
            scene.vacuum.run()
        while scene.vacuum.run() and scene.vacuum.is_under_way:
            pass
        scene.vacuum.run()
        scene.check_clean()
