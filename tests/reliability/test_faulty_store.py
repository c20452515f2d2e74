"""[P5]: a whole store over a real S3 server behind a proxy that fails, repeats, delays and lies."""

import time

import pytest

from hummock.columnar.write_batch import WriteBatch
from hummock.errors import HummockError
from hummock.options import RetryOptions
from tests.reliability.faulty_store import Place, Story, meta_at
from tests.reliability.store_workload import batches, epoch_of
from tests.support.servers.fault_proxy import HONEST, LYING, Kind, fault_proxy, share
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

PATIENT = RetryOptions(attempts=16, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=2_000,
                       idle_ms=2_000)
IMPATIENT = RetryOptions(attempts=64, first_delay_ms=1, max_delay_ms=4, deadline_ms=30_000, connect_ms=500,
                         idle_ms=150)
AWAY = RetryOptions(attempts=1_000, first_delay_ms=5, max_delay_ms=20, deadline_ms=1_000, connect_ms=1_000,
                    idle_ms=1_000)
LIES = sorted(LYING, key=lambda kind: kind.name)
CALL_SECONDS = 60.0         # the longest that a call may take while nothing answers


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
def place(server, proxy, tmp_path):
    def new(meta):
        upstream, _ = server
        return Place(make_bucket(upstream), proxy.endpoint, upstream, meta_at(meta, tmp_path))

    return new


def live_under(proxy, place, kind, seed, epochs):
    """A story whose first epoch is undisturbed, so that each kind finds something to spoil."""
    print(f"seed {seed}")
    story = Story(place, seed, IMPATIENT if kind is Kind.STALL else PATIENT)
    story.live(1, 1)
    proxy.plan = share(seed, kind)
    story.live(2, epochs)
    proxy.plan = lambda request: None
    print(f"{kind.name}: {proxy.injected[kind]} faults of {proxy.requests} requests, {story.reads} reads, "
          f"refused: {dict(story.refused)}")
    assert proxy.injected[kind] > 0 and story.reads > (0 if kind in LYING else epochs)
    return story


def check_honest(proxy, place, kind, seed, epochs):
    story = live_under(proxy, place, kind, seed, epochs)
    assert story.storage.committed_epoch >> 16 == epochs
    story.check_healed(epochs)
    return proxy.injected[kind]


def check_lying(proxy, place, kind, seed, epochs):
    """Where only answers were untrue, all is well again once they are not; what was not written stays refused."""
    story = live_under(proxy, place, kind, seed, epochs)
    if kind is not Kind.FORGOTTEN:
        story.check_healed(max(epochs, story.storage.committed_epoch >> 16))
        return proxy.injected[kind]
    story.typed("read", lambda: story.check(story.storage))
    seen = story.read_afresh(direct=True)
    assert seen is None or seen <= epochs
    story.typed("close", story.storage.close)
    assert story.refused, "nobody noticed that files were not there"
    return proxy.injected[kind]


def test_an_honest_fault_of_every_fourth_request_is_absorbed_or_typed(proxy, place):
    assert check_honest(proxy, place("log"), Kind.DROP_AFTER, 1, 3) > 10


def test_a_lie_is_noticed_or_harmless(proxy, place):
    assert check_lying(proxy, place("sqlite"), Kind.SWAPPED, 3, 3) > 0


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.name)
def test_honest_faults_over_twelve_epochs(proxy, place, kind, meta):
    assert check_honest(proxy, place(meta), kind, 100 + HONEST.index(kind), 12) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", LIES, ids=lambda kind: kind.name)
def test_lies_over_twelve_epochs(proxy, place, kind, meta):
    assert check_lying(proxy, place(meta), kind, 200 + LIES.index(kind), 12) >= 3


def suffer(story, number):
    """Every kind of call while nothing answers: each is typed and in time; the names of those that were refused."""
    storage, open_as = story.storage, story.place.open
    calls = {"commit": lambda: storage.commit(epoch_of(number)), "compact": lambda: storage.compact(timeout=0.5),
             "vacuum": storage.vacuum, "read": lambda: story.check(storage), "open": lambda: open_as("reader", AWAY),
             "claim": lambda: open_as("writer", AWAY), "snapshot": lambda: storage.snapshot().__enter__(),
             "wait": lambda: storage.wait_epoch(epoch_of(number), timeout_ms=50)}
    if story.place.meta != "log":       # what is not away would give the role to another
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


def check_outage(proxy, place, kind, rounds):
    """Several times everything is away and comes back; nothing is opened anew."""
    story = Story(place, 5, AWAY)
    number = 2
    story.live(1, number)
    for _ in range(rounds):
        for batch in batches(story.seed, number + 1):
            story.storage.ingest_batch(WriteBatch(batch), epoch_of(number + 1))
        proxy.plan = lambda request: kind
        refused = suffer(story, number + 1)
        assert refused >= {"commit", "vacuum", "wait"}, refused
        assert story.storage.committed_epoch == epoch_of(number)
        proxy.plan = lambda request: None
        number += 1
        assert story.commit(number), story.refused
        story.check(story.storage)
    story.retry = PATIENT
    story.check_healed(number)
    assert proxy.injected[kind] >= 5 * rounds


def test_a_total_outage_is_typed_in_time_and_heals_by_itself(proxy, place):
    check_outage(proxy, place("log"), Kind.SLOW_DOWN, 1)


@pytest.mark.slow
@pytest.mark.parametrize("meta", ["sqlite", "log"])
@pytest.mark.parametrize("kind", [Kind.DROP_BEFORE, Kind.STALL, Kind.ERROR_500], ids=lambda kind: kind.name)
def test_outages_come_and_go(proxy, place, kind, meta):
    check_outage(proxy, place(meta), kind, 3)


def test_a_store_is_closed_in_time_while_nothing_answers(proxy, place):
    story = Story(place("log"), 6, AWAY)
    story.live(1, 1)
    proxy.plan = lambda request: Kind.DROP_BEFORE
    began = time.monotonic()
    story.typed("close", story.storage.close)
    assert time.monotonic() - began < CALL_SECONDS
    proxy.plan = lambda request: None
    story.retry = PATIENT
    assert story.read_afresh() == 1
