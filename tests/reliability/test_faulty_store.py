"""[P5]: a whole store over an S3 server behind a proxy that fails, repeats, delays and falsifies requests."""

import time
from contextlib import suppress

import pytest

from hummock.columnar.write_batch import WriteBatch
from hummock.errors import HummockError
from hummock.options import RetryOptions
from tests.reliability.faulty_store import Scenario, StoreLocation, meta_at
from tests.reliability.store_workload import batches, epoch_of
from tests.support.drivers.waiting import eventually
from tests.support.servers.fault_proxy import HONEST, LYING, Kind, fault_proxy, share
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

PATIENT = RetryOptions(attempts=16, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=2_000,
                       idle_ms=2_000)
IMPATIENT = RetryOptions(attempts=64, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=500,
                         idle_ms=150)
AWAY = RetryOptions(attempts=1_000, first_delay_ms=20, max_delay_ms=80, deadline_ms=400, connect_ms=300, idle_ms=300)
LIES = sorted(LYING, key=lambda kind: kind.name)
CALL_SECONDS = 60.0         # the longest that a call may take during an outage
HEALING_EPOCHS = 5          # after an outage: on a busy machine a call may need more than the deadline of AWAY


@pytest.fixture(scope="module")
def server():
    with s3_server() as upstream, fault_proxy(upstream) as running:
        yield upstream, running


@pytest.fixture
def proxy(server, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    running = server[1]
    running.plan = lambda request: None
    running.injected.clear()
    yield running
    running.plan = lambda request: None


@pytest.fixture
def new_location(server, proxy, tmp_path):
    def new(meta):
        upstream, _ = server
        return StoreLocation(make_bucket(upstream), proxy.endpoint, upstream, meta_at(meta, tmp_path))

    return new


def run_under(proxy, location, kind, seed, epochs):
    """Runs a scenario whose first epoch has no faults, so that each kind of fault finds data to damage."""
    print(f"seed {seed}")
    scenario = Scenario(location, seed, IMPATIENT if kind is Kind.STALL else PATIENT)
    scenario.run(1, 1)
    proxy.plan = share(seed, kind)
    scenario.run(2, epochs)
    proxy.plan = lambda request: None
    print(f"{kind.name}: {proxy.injected[kind]} faults of {proxy.requests} requests, {scenario.reads} reads, "
          f"refused: {dict(scenario.refused)}")
    assert proxy.injected[kind] > 0 and scenario.reads > (0 if kind in LYING else epochs)
    return scenario


def check_honest(proxy, location, kind, seed, epochs):
    scenario = run_under(proxy, location, kind, seed, epochs)
    assert scenario.storage.committed_epoch >> 16 == epochs
    scenario.check_healed(epochs)
    return proxy.injected[kind]


def check_lying(proxy, location, kind, seed, epochs):
    """The store recovers once wrong answers end; files that were never written stay unreadable."""
    scenario = run_under(proxy, location, kind, seed, epochs)
    if kind is not Kind.FORGOTTEN:
        scenario.check_healed(max(epochs, scenario.storage.committed_epoch >> 16))
        return proxy.injected[kind]
    scenario.typed("read", lambda: scenario.check(scenario.storage))
    seen = scenario.read_with_new_reader(direct=True)
    assert seen is None or seen <= epochs
    scenario.typed("close", scenario.storage.close)
    assert scenario.refused, "missing files were not noticed"
    return proxy.injected[kind]


def test_an_honest_fault_of_every_fourth_request_is_absorbed_or_typed(proxy, new_location):
    assert check_honest(proxy, new_location("log"), Kind.DROP_AFTER, 1, 3) > 10


def test_a_false_answer_is_detected_or_harmless(proxy, new_location):
    assert check_lying(proxy, new_location("sqlite"), Kind.SWAPPED, 3, 3) > 0


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.name)
def test_honest_faults_over_twelve_epochs(proxy, new_location, kind, meta):
    assert check_honest(proxy, new_location(meta), kind, 100 + HONEST.index(kind), 12) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", LIES, ids=lambda kind: kind.name)
def test_false_answers_over_twelve_epochs(proxy, new_location, kind, meta):
    assert check_lying(proxy, new_location(meta), kind, 200 + LIES.index(kind), 12) >= 3


def call_everything(scenario, number):
    """Makes every kind of call during an outage, each of which must end in time; returns the names of the failed ones.
    """
    storage, open_as = scenario.storage, scenario.location.open
    calls = {"commit": lambda: storage.commit(epoch_of(number)), "compact": lambda: storage.compact(timeout=0.5),
             "vacuum": storage.vacuum, "read": lambda: scenario.check(storage), "open": lambda: open_as("reader", AWAY),
             "claim": lambda: open_as("writer", AWAY), "snapshot": lambda: storage.snapshot().__enter__(),
             "wait": lambda: storage.wait_epoch(epoch_of(number), timeout_ms=50)}
    if scenario.location.meta != "log":       # SQLite is not affected and would pass the role on
        del calls["claim"]
    refused = set()
    for name, call in calls.items():
        began = time.monotonic()
        try:
            call()
        except HummockError:
            refused.add(name)
        assert time.monotonic() - began < CALL_SECONDS, name
    return refused


def scenario_away(location, seed):
    """A scenario whose store gives up soon. On a busy machine it may not even be open in that time."""
    opened = []

    def is_open():
        with suppress(HummockError):
            opened.append(Scenario(location, seed, AWAY))
        return opened

    eventually(is_open)
    return opened[0]


def check_outage(proxy, location, kind, rounds):
    """Several total outages without reopening the store."""
    scenario = scenario_away(location, 5)
    number = 2
    scenario.run(1, number)
    for _ in range(rounds):
        for batch in batches(scenario.seed, number + 1):
            scenario.storage.ingest_batch(WriteBatch(batch), epoch_of(number + 1))
        proxy.plan = lambda request: kind
        refused = call_everything(scenario, number + 1)
        assert refused >= {"commit", "vacuum", "wait"}, refused
        assert scenario.storage.committed_epoch == epoch_of(number)
        proxy.plan = lambda request: None
        number += 1
        assert scenario.commit(number), scenario.refused
        eventually(lambda: scenario.typed("read", lambda: scenario.check_reads(scenario.storage, scenario.seed)),
                   scenario.refused)
    scenario.retry = PATIENT
    scenario.check_healed(number, HEALING_EPOCHS)
    assert proxy.injected[kind] >= 5 * rounds


def test_a_total_outage_is_typed_in_time_and_heals_by_itself(proxy, new_location):
    check_outage(proxy, new_location("log"), Kind.SLOW_DOWN, 1)


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", [Kind.DROP_BEFORE, Kind.STALL, Kind.ERROR_500], ids=lambda kind: kind.name)
def test_outages_come_and_go(proxy, new_location, kind, meta):
    check_outage(proxy, new_location(meta), kind, 3)


def test_a_store_is_closed_in_time_while_nothing_answers(proxy, new_location):
    scenario = scenario_away(new_location("log"), 6)
    scenario.run(1, 1)
    proxy.plan = lambda request: Kind.DROP_BEFORE
    began = time.monotonic()
    scenario.typed("close", scenario.storage.close)
    assert time.monotonic() - began < CALL_SECONDS
    proxy.plan = lambda request: None
    scenario.retry = PATIENT
    assert scenario.read_with_new_reader() == 1
