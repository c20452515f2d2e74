"""[P5] at the object store's own level: a real S3 server behind a proxy that fails, repeats, delays and falsifies."""

import random
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import DeadlineExceeded, HummockError, ObjectExists, ObjectNotFound, ObjectStoreError
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.metrics import Metrics
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.s3 import S3ObjectStore
from hummock.object_store.url import parse_address
from hummock.options import MIB, RetryOptions, StorageOptions
from hummock.store.storage import HummockStorage
from tests.support.drivers.seeds import amount
from tests.support.servers.fault_proxy import HONEST, STALL_SECONDS, Kind, fault_proxy, share
from tests.support.servers.s3_server import make_bucket

RETRY = RetryOptions(attempts=16, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=2_000, idle_ms=2_000)
IMPATIENT = RetryOptions(attempts=64, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=500, idle_ms=250)
PATIENT = replace(RETRY, connect_ms=90_000, idle_ms=90_000)
PART = 5 * MIB


@pytest.fixture(scope="module")
def proxy(s3_endpoint):
    with fault_proxy(s3_endpoint) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(proxy, s3_credentials):
    proxy.plan = lambda request: None
    proxy.injected.clear()
    yield
    proxy.plan = lambda request: None


def open_store(proxy, retry=RETRY):
    address = parse_address(f"s3://{make_bucket(proxy.endpoint)}/p?endpoint={proxy.endpoint}")
    store = S3ObjectStore(address, retry, Metrics(), part_bytes=PART)
    return InstrumentedObjectStore(store, Metrics(), retry, Pacing(random.Random(1)))


class Workload:
    """Random calls on unique names, and a model of the objects that must exist afterwards.

    `certain` holds the bytes that an object must have; `unsure` those that it has if it exists.
    """

    def __init__(self, store, seed):
        self.store, self.rng = store, random.Random(seed)
        self.certain, self.unsure, self.failed, self.count = {}, {}, 0, 0

    def run(self, steps):
        for _ in range(steps):
            kinds = [self.put, self.put, self.write, self.get, self.get, self.head, self.list, self.delete]
            try:
                self.rng.choice(kinds)()
            except DeadlineExceeded:
                self.failed += 1

    def name(self):
        self.count += 1
        return f"sst/{self.count:04d}-{self.rng.randrange(1 << 32):08x}"

    def put(self):
        self._create(lambda path, data: self.store.put(path, data, if_absent=True))

    def write(self):
        def write(path, data):
            with self.store.create(path) as writer:
                for start in range(0, len(data), 1000):
                    writer.write(data[start:start + 1000])

        self._create(write)

    def _create(self, call):
        path, data = self.name(), self.rng.randbytes(self.rng.randrange(3000))
        self.unsure[path] = data
        call(path, data)
        self.certain[path] = self.unsure.pop(path)

    def get(self):
        if self.certain:
            path = self.rng.choice(sorted(self.certain))
            start, stop = sorted(self.rng.randrange(4000) for _ in range(2))
            assert self.store.get(path, range(start, stop)) == self.certain[path][start:stop]
            assert self.store.get(path) == self.certain[path]
        with pytest.raises(ObjectNotFound):
            self.store.get("sst/never")

    def head(self):
        for path in list(self.certain)[:2]:
            assert self.store.head(path).size_bytes == len(self.certain[path])

    def list(self):
        self.check_listing()

    def delete(self):
        paths = sorted(self.certain)[:2]
        for path in paths:
            self.unsure[path] = self.certain.pop(path)
        self.store.delete(paths)

    def check_listing(self):
        listed = {found.path: found.size_bytes for found in self.store.list()}
        for path, data in self.certain.items():
            assert listed.pop(path) == len(data)
        assert all(len(self.unsure[path]) == size for path, size in listed.items())

    def check(self):
        """Every certain object exists and is whole; an unsure one is whole or absent."""
        self.check_listing()
        for path, data in self.certain.items():
            assert self.store.get(path) == data
        for path, data in self.unsure.items():
            with suppress(ObjectNotFound):
                assert self.store.get(path) == data


@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.name)
def test_an_honest_fault_of_every_fourth_request_is_absorbed_or_typed(proxy, kind):
    run_under(proxy, kind, seed=HONEST.index(kind), steps=8 if kind is Kind.STALL else amount(10, 16))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.name)
def test_honest_faults_over_many_requests(proxy, kind, seed):
    run_under(proxy, kind, seed=100 + seed, steps=200)


def run_under(proxy, kind, seed, steps):
    print(f"seed {seed}")
    store = open_store(proxy, IMPATIENT if kind is Kind.STALL else RETRY)
    workload = Workload(store, seed)
    workload.run(4)
    proxy.plan = share(seed, kind)
    workload.run(steps)
    assert proxy.injected[kind] >= steps // 6
    assert workload.failed <= steps // 4
    proxy.plan = lambda request: None
    workload.check()
    store.close()


@pytest.mark.parametrize("kind", [Kind.DROP_BEFORE, Kind.STALL, Kind.SLOW_DOWN], ids=lambda kind: kind.name)
def test_a_total_outage_is_typed_within_the_deadline_and_heals_by_itself(proxy, kind):
    retry = RetryOptions(attempts=10**6, first_delay_ms=5, max_delay_ms=50, deadline_ms=200, connect_ms=100,
                         idle_ms=100)
    store = open_store(proxy, retry)
    patient = InstrumentedObjectStore(store._store, Metrics(), RETRY, Pacing(random.Random(1)))
    patient.put("before", b"1")
    proxy.plan = lambda request: kind
    for call in (lambda: store.get("before"), lambda: store.put("a", b"", if_absent=True), lambda: store.head("before"),
                 lambda: list(store.list()), lambda: store.delete(["a"]), lambda: store.create("b").close()):
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            call()
        assert time.monotonic() - began < STALL_SECONDS / 2     # 0.2 s of deadline, and slack for a busy machine
    assert proxy.injected[kind] >= 6
    proxy.plan = lambda request: None
    assert patient.get("before") == b"1"
    patient.put("after", b"2", if_absent=True)
    assert [found.path for found in patient.list()][:1] == ["after"]


@pytest.mark.parametrize("kind", [Kind.DROP_AFTER, Kind.CUT_HEAD, Kind.REPLAY, Kind.LATE, Kind.ERROR_500],
                         ids=lambda kind: kind.name)
def test_a_stream_in_parts_survives_faults_of_each_request(proxy, kind):
    store = open_store(proxy)
    data = random.Random(5).randbytes(2 * PART + 17)
    proxy.plan = share(2, kind, percent=50)
    with store.create("sst/a") as writer:
        for start in range(0, len(data), PART - 1):
            writer.write(data[start:start + PART - 1])
    assert store.get("sst/a") == data
    with pytest.raises(ObjectExists), store.create("sst/a") as writer:
        writer.write(bytes(PART + 1))
    proxy.plan = lambda request: None
    assert store.get("sst/a") == data
    assert [found.path for found in store.list()] == ["sst/a"]
    assert proxy.injected[kind] >= 4


def test_an_answer_that_came_too_slowly_is_a_fault_of_the_try(proxy):
    store = open_store(proxy, PATIENT)._store
    store.put("a", bytes(100_000))
    limited = store.within(0.05)
    proxy.plan = lambda request: Kind.STALL
    began = time.monotonic()
    with pytest.raises(ObjectStoreError):
        limited.get("a")
    assert time.monotonic() - began < STALL_SECONDS / 2     # the idle timeout alone is longer


class TestLies:
    """Checksums detect what no client of an object store can: reads return the same rows or a typed error."""

    @pytest.mark.parametrize("kind", [Kind.ALTERED, Kind.SHORTENED, Kind.SWAPPED, Kind.DENIED, Kind.FORGOTTEN],
                             ids=lambda kind: kind.name)
    def test_rows_are_right_or_an_error_says_what_is_not(self, proxy, kind):
        store = open_store(proxy)
        manager = HummockManager(MemoryMetaStore(), store)
        session = manager.claim_writer()
        rng, expected, epoch = random.Random(7), {}, Epoch(0)
        plan = share(HONEST.index(Kind.DRIP) + 1, kind, percent=50)
        proxy.plan = plan if kind is Kind.FORGOTTEN else proxy.plan
        with HummockStorage(manager, store, StorageOptions(inline_bytes=0), session=session) as node:
            for number in range(1, 7):
                epoch = Epoch(number << 16)
                rows = {b"%04d" % rng.randrange(1000): rng.randbytes(50) for _ in range(50)}
                node.ingest_batch(WriteBatch(sorted(rows.items())), epoch)
                node.commit(epoch)
                expected.update(rows)
        proxy.plan = plan
        outcomes = [self.read(manager, store, epoch, expected) for _ in range(amount(6, 12))]
        assert proxy.injected[kind] >= 4
        assert outcomes.count("refused") >= 1
        proxy.plan = lambda request: None
        assert self.read(manager, store, epoch, expected) == ("refused" if kind is Kind.FORGOTTEN else "right")

    def read(self, manager, store, epoch, expected):
        try:
            with HummockStorage(manager, store, StorageOptions(block_cache_bytes=1, meta_cache_bytes=1)) as node:
                rows = dict(node.scan(KeyRange(b"", None), epoch))
                first = node.get(min(expected), epoch)
        except HummockError:
            return "refused"
        assert rows == expected and first == expected[min(expected)]
        return "right"

    @pytest.mark.parametrize("kind", [Kind.GHOST, Kind.HIDDEN], ids=lambda kind: kind.name)
    def test_a_false_listing_makes_no_object_come_or_go(self, proxy, kind):
        store = open_store(proxy)
        for path in ("a", "b"):
            store.put(path, path.encode())
        proxy.plan = share(1, kind, percent=100)
        seen = [found.path for found in store.list()]
        assert proxy.injected[kind] == 1 and seen != ["a", "b"]
        assert [store.get(path) for path in ("a", "b")] == [b"a", b"b"]
        with pytest.raises(ObjectNotFound):
            store.get("b.ghost")
