"""Loss and corruption of the log in a bucket: an error that names the object, or right answers."""

import random

import pytest

from hummock.errors import (
    HummockError,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreReplaced,
    MetaStoreRolledBack,
)
from hummock.meta.store.base import MetaOperations
from tests.support.suites.meta_store_suite import put
from tests.support.worlds.object_log_world import LogWorld, copied, count, restore


@pytest.fixture
def world():
    return LogWorld()


class TestLoss:
    """A log that is emptied, rolled back or another store's is refused by name, at opening and while open."""

    def build(self, world, steps=11):
        store = world.open()
        count(store, steps)
        store.close()
        return copied(world.objects, "meta/")

    def test_an_emptied_log(self, world):
        self.build(world)
        live = world.open()
        restore(world.objects, {})
        with pytest.raises(MetaStoreEmptied, match="store/witness"):
            world.open()
        world.clock.advance(60_000)
        for use in (lambda: live.get("n"), lambda: count(live), lambda: live.transaction(put(n=b"1"))):
            with pytest.raises(MetaStoreEmptied):
                use()

    @pytest.mark.parametrize("steps", [0, 1, 11, 30])
    def test_a_prefix_that_is_emptied_and_used_again_gets_nothing_of_a_process_that_lives_on(self, world, steps):
        self.build(world)
        live = world.open()
        count(live)
        restore(world.objects, {}, "")
        with pytest.raises(MetaStoreEmptied, match="this process"):
            live.transaction(put(n=b"late"))
        assert world.paths("") == []
        other = world.open()
        count(other, steps)
        before = copied(world.objects)
        for use in (lambda: live.transaction(put(n=b"late")), lambda: live.transaction(put(n=b"later"))):
            with pytest.raises(MetaStoreReplaced, match=r"opened store [0-9a-f]{32}, found is [0-9a-f]{32}"):
                use()
        live.close()
        assert copied(world.objects) == before
        count(other, 20)
        assert world.open().get("n") == other.get("n") == b"%d" % (steps + 20)

    def test_an_emptied_log_of_one_transaction(self, world):
        self.build(world, 1)
        restore(world.objects, {})
        with pytest.raises(MetaStoreEmptied):
            world.open()

    @pytest.mark.parametrize("later", [1, 4, 30])
    def test_an_older_copy(self, world, later):
        older = self.build(world)
        self.build(world, later)
        live = world.open()
        restore(world.objects, older)
        with pytest.raises(MetaStoreCorrupt, match="last transaction"):
            world.open(create=False)
        world.clock.advance(60_000)
        for use in (lambda: live.get("n"), lambda: live.transaction(put(n=b"1"))):
            with pytest.raises(MetaStoreCorrupt, match="last transaction"):
                use()
        with pytest.raises(MetaStoreRolledBack, match=r"store/witness/.* knows of transaction"):
            world.open()
        accepted = world.open(accept_rollback=True)
        assert accepted.get("n") == b"11"
        count(accepted)
        accepted.close()
        again = world.open()
        assert again.get("n") == b"12" and len(world.paths("store/witness/")) == 1

    def test_a_log_that_took_another_way_since(self, world):
        self.build(world)
        older = copied(world.objects)
        self.build(world, 7)
        other = LogWorld(world.objects)
        restore(world.objects, older, "")
        newer = self.build(other, 8)
        restore(world.objects, older, "")
        self.build(world, 7)
        restore(world.objects, newer)
        with pytest.raises(MetaStoreCorrupt, match="transaction 18"):
            world.open()

    def test_another_stores_log(self, world):
        self.build(world)
        restore(world.objects, self.build(LogWorld()))
        with pytest.raises(MetaStoreCorrupt, match=r"place in the log|store id"):
            world.open()

    def test_a_lost_identity(self, world):
        self.build(world)
        world.objects.delete(["store/identity"])
        for create in (True, False):
            with pytest.raises(MetaStoreCorrupt, match="store/identity"):
                world.open(create=create)

    def test_a_record_missing_inside(self, world):
        self.build(world)
        for path in (f"meta/{9:020d}", f"meta/{10:020d}"):
            data = world.objects.get(path)
            world.objects.delete([path])
            with pytest.raises(MetaStoreCorrupt, match=path):
                world.open()
            world.objects.put(path, data)

    def test_a_lost_guard_record_is_written_again(self, world):
        self.build(world)
        world.objects.delete(world.paths("store/witness/"))
        count(store := world.open())
        store.close()
        assert len(world.paths("store/witness/")) == 1
        restore(world.objects, {})
        with pytest.raises(MetaStoreEmptied):
            world.open()

    def test_a_foreign_object_among_the_records(self, world):
        self.build(world)
        world.objects.put("meta/notes.txt", b"x")
        with pytest.raises(MetaStoreError, match="notes"):
            world.open()


class TestDamage:
    """Damage to any one object yields right answers or a typed error."""

    def build(self, seed):
        world, rng = LogWorld(), random.Random(seed)
        store = world.open()
        for number in range(23):
            world.clock.advance(300)
            store.transaction(MetaOperations(put={f"k/{rng.randrange(40)}": rng.randbytes(rng.randrange(600)),
                                                  "head": b"%d" % number}))
        store.close()
        return copied(world.objects), store._state.rows

    def outcome(self, files, path, data, rows):
        world = LogWorld()
        for other, content in files.items():
            world.objects.put(other, data if other == path else content)
        try:
            store = world.open(create=False)
            assert store.list("") == sorted(rows.items())
            assert [store.get(key) for key in rows] == list(rows.values())
            store.transaction(put(new=b"1"))
            assert store.list("") == sorted({**rows, "new": b"1"}.items())
            assert store.verify() == len(rows) + 1
        except HummockError:
            return "refused"
        return "right"

    def sweep(self, seed, flips):
        rng, counts = random.Random(seed), {"right": 0, "refused": 0}
        files, rows = self.build(seed)
        for number in range(flips):
            path = rng.choices(list(files), [len(data) for data in files.values()])[0]
            data = bytearray(files[path])
            offset, bit = rng.randrange(len(data)), rng.randrange(8)
            data[offset] ^= 1 << bit
            try:
                counts[self.outcome(files, path, bytes(data), rows)] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, flip {number}: {path} byte {offset} bit {bit}") from error
        print(f"seed {seed}: {counts}")
        return counts

    def test_flipped_bits_give_right_answers_or_typed_errors(self):
        counts = self.sweep(1, 400)
        assert counts["refused"] > 40 and counts["right"] > 40

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4))
    def test_twenty_thousand_flips_give_right_answers_or_typed_errors(self, seed):
        assert self.sweep(100 + seed, 5_000)["refused"] > 500

    def truncations(self, grid):
        files, rows = self.build(2)
        for path, data in files.items():
            for size in range(0, len(data), grid):
                assert self.outcome(files, path, data[:size], rows) in ("right", "refused")

    def test_truncations_give_right_answers_or_typed_errors(self):
        self.truncations(256)

    @pytest.mark.slow
    def test_truncations_of_a_fine_grid_give_right_answers_or_typed_errors(self):
        self.truncations(8)

    def test_exchanged_objects_give_right_answers_or_typed_errors(self):
        files, rows = self.build(3)
        counts = {"right": 0, "refused": 0}
        for path in files:
            for other in files:
                if path != other:
                    counts[self.outcome(files, path, files[other], rows)] += 1
        assert counts["refused"] > 20
