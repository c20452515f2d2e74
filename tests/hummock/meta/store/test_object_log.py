"""The meta store's log in a bucket: concurrency, lost responses, stalled processes and request counts."""

import os
import random
import threading

import pytest

from hummock.errors import (
    DeadlineExceeded,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreError,
    MetaStoreUnfit,
    ObjectExists,
    ObjectStoreRefused,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
    StoreNotFound,
)
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.object_log import ObjectLogMetaStore
from hummock.meta.store.object_log_format import CHECKPOINT_MAGIC, LogRecord
from hummock.meta.store.object_log_gc import LogListing
from hummock.meta.store.rollback_guard_bucket import CLOCK, GUARD_EVERY, IDENTITY, BucketRollbackGuard, GuardRecord
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import MetaOptions
from tests.support.drivers.forks import held_by_a_thread, outcomes_in_a_child
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultyObjectStore
from tests.support.suites.meta_store_suite import MetaStoreSuite, a_fork_is_refused, openers_agree, put
from tests.support.worlds.manager_parts import Files, epoch_of, open_manager
from tests.support.worlds.object_log_world import LogWorld, copied, count


class TestObjectLogInMemory(MetaStoreSuite):
    @pytest.fixture
    def store(self):
        return ObjectLogMetaStore(MemoryObjectStore())


class TestObjectLogOnDisk(MetaStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return ObjectLogMetaStore(LocalObjectStore(tmp_path))


class TestObjectLogOfTwoCheckpointsAtOnce(MetaStoreSuite):
    """Writes a checkpoint after each record; a second handle must read the same rows."""

    @pytest.fixture
    def store(self):
        objects, options = MemoryObjectStore(), MetaOptions(log_checkpoint_records=1, log_grace_ms=40)
        store = ObjectLogMetaStore(objects, options=options)
        yield store
        assert ObjectLogMetaStore(objects, create=False).list("") == store.list("")


@pytest.fixture
def world():
    return LogWorld()


def test_two_handles_see_each_other_and_lose_no_step(world):
    one, two = world.open(), world.open()
    for _ in range(20):
        count(one)
        count(two)
    assert one.get("n") == two.get("n") == b"40"
    with pytest.raises(PreconditionFailed):
        two.transaction(MetaOperations(require={"n": b"1"}, put={"n": b"2"}))


def test_a_handle_that_is_behind_still_judges_by_the_newest_rows(world):
    one, two = world.open(), world.open()
    one.transaction(put(a=b"1"))
    two.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
    with pytest.raises(PreconditionFailed) as caught:
        one.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"3"}))
    assert caught.value.got == b"2"
    one.transaction(MetaOperations(require={"a": b"2", "b": None}, delete=("a",)))
    assert two.list("") == []


def test_a_commit_alone_is_one_request(world):
    store = world.open()
    count(store, 3)
    store.transaction(put(a=b"1"))
    world.calls()
    store.transaction(MetaOperations(require={"a": b"1"}, put={"a": b"2"}))
    assert world.calls() == [("get", IDENTITY), ("put", f"meta/{5:020d}")]
    store.get("a")
    assert world.calls() == [("get", f"meta/{6:020d}")]
    store.close()


def test_reads_of_one_moment_ask_once(world):
    one, two = world.open(), world.open()
    count(one)
    world.calls()
    with one.one_moment():
        assert one.get("n") == b"1"
        count(two)
        asked = len(world.calls())
        with one.one_moment():
            assert one.get("n") == b"1" and one.list("m") == []
        assert world.calls() == []
        count(two)
        world.calls()
        watcher = threading.Thread(target=lambda: one.get("n"))
        watcher.start()
        watcher.join()
        assert len(world.calls()) == 3 and asked
        assert one.get("n") == b"3"             # never older than what any thread has read
        with pytest.raises(PreconditionFailed):
            one.transaction(MetaOperations(require={"n": b"1"}, put={"n": b"2"}))
    count(two)
    assert one.get("n") == b"4"


def test_a_managers_look_for_news_is_one_request(world):
    writer = open_manager(world.open(), world.clock)
    reader = open_manager(store := world.open(), world.clock, seed=1)
    session = writer.claim_writer()
    reader.refresh()
    world.calls()
    reader.refresh()
    assert len(world.calls()) == 1
    writer.commit_epoch(session, epoch_of(1), [Files().make(1)])
    world.calls()
    assert reader.refresh().max_committed_epoch == epoch_of(1)
    assert len(world.calls()) == 2              # the record, and a miss for the next one
    store.close()


def test_the_log_stays_short_and_cheap_under_many_commits(world):
    store = world.open()
    world.calls()
    for number in range(1000):
        world.clock.advance(100)
        store.transaction(put(n=b"%d" % number))
    calls = world.calls()
    assert len(calls) < 3_600
    kept_ms = 8_000 + 4 * 100
    assert len(world.paths()) < kept_ms / 100 * 1.5 + 8
    world.calls()
    assert world.open(create=False).get("n") == b"999"
    assert len(world.calls()) < 16
    assert len(world.paths("store/")) <= 4


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
@pytest.mark.parametrize("reading", ["works", "fails"])
def test_a_lost_answer_is_found_out_or_called_unknown(world, kind, reading):
    store = world.open()
    count(store, 2)
    world.plan.add(Fault(kind, "put", "meta/"))
    if reading == "fails":
        world.plan.add(Fault(FaultKind.BEFORE, "get", "meta/"))
    happened = kind is FaultKind.AFTER
    if happened and reading == "works":
        store.transaction(put(n=b"9"))
    else:
        with pytest.raises(OutcomeUnknown):
            store.transaction(put(n=b"9"))
    assert store.get("n") == (b"9" if happened else b"2")
    count(store)
    assert world.open().get("n") == (b"10" if happened else b"3")


def test_a_create_that_arrives_late_has_no_second_effect(world):
    """Its transaction was retried meanwhile, so the record number is already used."""
    store = world.open()
    count(store)
    world.plan.add(Fault(FaultKind.BEFORE, "put", "meta/"))
    held = []
    put_for_real = world.objects.put
    with pytest.raises(OutcomeUnknown):
        count(store)
    state = store._state
    late = LogRecord(state.store_id, state.serial + 1, state.digest, b"m" * 16, (), {"n": b"2"}).encode()
    held.append(late)
    count(store)
    with pytest.raises(ObjectExists):
        put_for_real(f"meta/{2:020d}", held[0], if_absent=True)
    assert store.get("n") == b"2"


def test_a_process_that_slept_never_writes_under_a_used_number(world):
    """It stalls inside its create until the records that it had not read are deleted."""
    sleeper, other = world.open(), world.open()
    count(sleeper, 2)
    put_for_real, used = world.objects.put, []

    def sleep_through(path, data, *, if_absent=False):
        world.objects.put = put_for_real
        for _ in range(40):
            world.clock.advance(1_000)
            count(other)
        used.append(path)
        assert path not in world.paths()
        return put_for_real(path, data, if_absent=if_absent)

    world.objects.put = sleep_through
    with pytest.raises(OutcomeUnknown):
        sleeper.transaction(MetaOperations(require={"n": b"2"}, put={"n": b"wrong"}))
    assert used == [f"meta/{3:020d}"]
    assert sleeper.get("n") == other.get("n") == world.open().get("n") == b"42"
    world.clock.advance(20_000)
    count(other, 8)
    assert used[0] not in world.paths()


def test_a_process_that_slept_lists_the_log_again_when_it_reads(world):
    sleeper, other = world.open(), world.open()
    count(sleeper, 2)
    for _ in range(40):
        world.clock.advance(1_000)
        count(other)
    world.calls()
    assert sleeper.get("n") == b"42"
    assert ("list", "meta/") in world.calls()
    world.clock.advance(1_900)
    assert sleeper.get("n") == b"42"
    assert world.calls() == [("get", f"meta/{43:020d}")]


@pytest.mark.parametrize("seed", range(4))
def test_sleepers_of_any_length_leave_one_history(seed):
    """Random handles commit; some stall before a request; all must agree on the history."""
    rng = random.Random(seed)
    world = LogWorld()
    handles = [world.open() for _ in range(3)]
    acknowledged, unknown, busy = [], [], []
    put_for_real = world.objects.put

    def step(handle, name):
        busy.append(handle)
        value = handle.get("n")
        try:
            handle.transaction(MetaOperations(require={"n": value}, put={"n": (value or b"") + name}))
            acknowledged.append(name)
        except PreconditionFailed:
            pass
        except OutcomeUnknown:
            unknown.append(name)
        busy.remove(handle)

    def interrupted(path, data, *, if_absent=False):
        if len(busy) < 3 and path.startswith("meta/0") and rng.random() < .1:
            for _ in range(rng.randrange(1, 30)):
                world.clock.advance(rng.randrange(3_000))
                step(rng.choice([handle for handle in handles if handle not in busy]), b"<%d>" % rng.randrange(10**9))
        put_for_real(path, data, if_absent=if_absent)

    world.objects.put = interrupted
    for _ in range(150):
        world.clock.advance(rng.randrange(500))
        step(rng.choice(handles), b"<%d>" % rng.randrange(10**9))
    values = {handle.get("n") for handle in [*handles, world.open()]}
    assert len(values) == 1, seed
    history = values.pop().decode().removeprefix("<").removesuffix(">").split("><")
    assert len(set(history)) == len(history)
    assert {name.decode().strip("<>") for name in acknowledged} <= set(history), seed
    print(f"seed {seed}: {len(history)} steps, {len(acknowledged)} acknowledged, {len(unknown)} unknown")
    assert unknown


class Careless(MemoryObjectStore):
    """Ignores `if_absent` and overwrites."""

    def put(self, path, data, *, if_absent=False):
        super().put(path, data)


class Refusing(MemoryObjectStore):
    def put(self, path, data, *, if_absent=False):
        if if_absent:
            raise ObjectStoreRefused(path, "NotImplemented: a header is not implemented")
        super().put(path, data)


class Incapable(MemoryObjectStore):
    creates_exclusively = False


@pytest.mark.parametrize(("objects", "reason"), [(Careless, "ignores"), (Refusing, "NotImplemented"),
                                                 (Incapable, "no create-if-absent")])
def test_a_store_without_the_condition_is_refused_with_the_reason(objects, reason):
    with pytest.raises(MetaStoreUnfit, match=reason):
        ObjectLogMetaStore(objects())
    kept = objects()
    for path, data in made_elsewhere():
        MemoryObjectStore.put(kept, path, data)
    with pytest.raises(MetaStoreUnfit, match=reason):
        ObjectLogMetaStore(kept, create=False)


def made_elsewhere():
    objects = MemoryObjectStore()
    store = ObjectLogMetaStore(objects)
    store.transaction(put(a=b"1"))
    store.close()
    return copied(objects).items()


def test_reading_makes_no_store(world):
    with pytest.raises(MetaStoreError, match="there is no store"):
        world.open(create=False)
    assert world.paths("") == []


def test_many_openers_of_a_new_store_agree():
    objects = MemoryObjectStore()
    openers_agree(lambda: ObjectLogMetaStore(objects))


def test_a_record_is_these_bytes():
    record = LogRecord(bytes(range(16)), 258, b"p" * 16, b"m" * 16, ("gone",), {"a/b": b"\xff\0"})
    data = record.encode()
    assert data[:-16].hex() == (
        "484d4b4c4f473031" "000102030405060708090a0b0c0d0e0f" "0201000000000000" + "70" * 16 + "6d" * 16
        + "01000000" "01000000" "0400" "676f6e65" "0300" "02000000" "612f62" "ff00")
    assert LogRecord.decode(data, "x") == (record, data[-16:])
    with pytest.raises(MetaStoreCorrupt, match="magic"):
        LogRecord.decode(data, "x", CHECKPOINT_MAGIC)
    record = GuardRecord(b"i" * 16, 3, b"d" * 16)
    assert GuardRecord.decode(record.encode(), "x") == record


@pytest.mark.parametrize(("records", "checkpoints", "gone"), [
    ({1: 0, 2: 10, 3: 200}, {}, ([], [])),
    ({1: 0, 2: 10, 3: 200}, {2: 20}, ([], [1, 2])),
    ({1: 0, 2: 10, 3: 110}, {2: 20}, ([], [])),
    ({1: 0, 5: 10, 6: 120, 7: 121}, {2: 5, 5: 20}, ([2], [1, 5])),
    ({7: 121}, {2: 5, 5: 22, 6: 120}, ([], [])),
    ({}, {2: 5, 9: 500}, ([], [])),
])
def test_what_goes_is_covered_by_a_checkpoint_for_longer_than_the_grace(records, checkpoints, gone):
    assert LogListing(records, checkpoints).outlived(100) == gone


def test_a_writer_that_is_overtaken_for_too_long_raises_busy(world):
    store = LogWorld(busy_timeout_ms=500).open()
    other = ObjectLogMetaStore(store._guard._objects)
    append = store._objects.append

    def overtaken(serial, data):
        world.clock.advance(100)
        store._monotonic = lambda: world.clock() / 1000
        count(other)
        append(serial, data)

    store._objects.append = overtaken
    with pytest.raises(MetaStoreBusy):
        store.transaction(put(a=b"1"))
    assert other.get("a") is None


def test_an_outage_is_a_typed_error_and_heals(world):
    store = world.open()
    count(store)
    world.plan.add(Fault(FaultKind.BEFORE, times=10**9))
    for use in (lambda: store.get("n"), lambda: store.list(""), store.verify, lambda: store.transaction(put(a=b"1")),
                lambda: store.transaction(MetaOperations(require={"n": b"0"}))):
        with pytest.raises(MetaStoreError):
            use()
    with pytest.raises(MetaStoreError):
        world.open()
    world.plan.clear()
    count(store)
    assert store.get("n") == b"2"


def test_an_outage_takes_no_longer_than_two_deadlines_of_the_objects(world):
    """One for the create, one for the read that checks its outcome; no other request is made."""
    def give_up(operation, path):
        raise DeadlineExceeded(path, "no answer", 8)

    manager = open_manager(store := world.open(), world.clock)
    session = manager.claim_writer()
    store._objects.append = lambda serial, data: give_up("put", f"meta/{serial}")
    asked = []
    store._objects.record = lambda serial: asked.append(serial) or give_up("get", f"meta/{serial}")
    with pytest.raises(OutcomeUnknown):
        manager.commit_epoch(session, epoch_of(1), [Files().make(1)])
    assert len(asked) == 1


def test_leases_run_by_the_clock_of_the_objects(world):
    one, two = world.open(), world.open()
    world.clock.advance(5_000)
    assert one.now_ms() == two.now_ms() == world.clock()
    world.calls()
    world.clock.advance(5_000)
    assert one.now_ms() == world.clock() and world.calls() == []
    world.plan.add(Fault(FaultKind.BEFORE, times=10**9))
    world.clock.advance(10_000_000)
    assert one.now_ms() == world.clock() and world.calls() == [("put", "store/clock")]
    with pytest.raises(MetaStoreError):
        BucketRollbackGuard(FaultyObjectStore(world.objects, world.plan), os.urandom).now_ms()


@pytest.mark.parametrize("slow", ["put", "head"])
def test_leases_do_not_run_ahead_by_the_wait_for_the_objects(world, monkeypatch, slow):
    store, call = world.open(), getattr(world.objects, slow)
    store.now_ms()

    def late(path, *arguments, **options):
        if path == CLOCK:
            world.clock.advance(9_000)          # retries
        return call(path, *arguments, **options)

    monkeypatch.setattr(world.objects, slow, late)
    world.clock.advance(10_000_000)
    assert store.now_ms() == world.clock()
    world.clock.advance(9_000)
    assert store.now_ms() == world.clock()


def test_a_clock_that_was_slow_to_read_is_behind_by_that_at_most(world, monkeypatch):
    store, head = world.open(), world.objects.head

    def late(path):
        world.clock.advance(9_000)
        return head(path)

    monkeypatch.setattr(world.objects, "head", late)
    assert world.clock() - 9_000 <= store.now_ms() <= world.clock()
    monkeypatch.setattr(world.objects, "head", head)
    world.clock.advance(10_001)
    assert store.now_ms() == world.clock()


def test_a_fork_closes_without_waiting_for_a_thread_of_its_parent(world):
    store = world.open()
    with held_by_a_thread(store._lock):
        assert outcomes_in_a_child({"close": store.close}) == {"close": ""}
    count(store)


def test_what_was_opened_for_a_log_is_closed_if_there_is_none():
    closed = []
    with pytest.raises(StoreNotFound):
        ObjectLogMetaStore(MemoryObjectStore(), create=False, on_close=lambda: closed.append(1))
    assert closed == [1]


def test_guard_records_are_no_more_than_their_share_of_requests(world):
    store = world.open()
    world.calls()
    for _ in range(4 * GUARD_EVERY):
        store.transaction(put(a=b"1"))
    assert sum(path.startswith("store/witness/") for _, path in world.calls()) <= 2 * 4 * GUARD_EVERY / 4 + 4


def test_a_fork_may_not_use_the_handle(world):
    store = world.open()
    a_fork_is_refused(store)
    count(store)
    store.close()
    with pytest.raises(StoreClosed):
        store.get("n")
