"""The vacuum loop: removal of obsolete files, rarer listings, errors, and a stop after the current page."""

import threading

import pytest

from hummock.errors import ObjectStoreError
from hummock.meta.vacuum.loop import VacuumLoop
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.vacuum_world import VacuumWorld, names


@pytest.fixture
def world():
    world = VacuumWorld()
    world.commit_new(2)
    world.replace()
    world.upload(name="ab" * 16)
    return world


def test_a_round_removes_stale_files_and_lists_nothing(world):
    plan = FaultPlan()
    loop = VacuumLoop(world.vacuum(objects=FaultyObjectStore(world.objects, plan), listing_ms=1 << 40))
    loop.round()
    assert {operation for operation, _ in plan.calls} == {"delete"}
    assert world.stored == names(world.manager.version) | {"ab" * 16} and loop.report is None


def test_a_round_lists_when_it_is_time(world):
    loop = VacuumLoop(world.vacuum(listing_ms=1))
    loop._listed_at -= 1
    loop.round()
    assert world.stored == names(world.manager.version) and loop.report.is_complete


def test_the_thread_works_until_it_is_closed(world):
    done = threading.Event()
    vacuum = world.vacuum(interval_ms=1, listing_ms=1)
    remove = vacuum.run
    vacuum.run = lambda **options: (remove(**options), done.set())[0]
    with VacuumLoop(vacuum).start() as loop:
        started = loop._thread
        assert started.is_alive() and done.wait(20)
    assert world.stored == names(world.manager.version) and loop.error is None
    assert not started.is_alive()
    loop.close()


def test_an_error_is_kept_and_counted_until_a_round_succeeds(world):
    plan = FaultPlan([Fault(FaultKind.BEFORE, "delete")])
    vacuum = world.vacuum(objects=FaultyObjectStore(world.objects, plan))
    loop = VacuumLoop(vacuum)
    loop.round()
    assert isinstance(loop.error, ObjectStoreError)
    counted = vacuum.metrics.registry.get_sample_value(
        "hummock_vacuum_failures_total", {"error": "ObjectStoreError"})
    assert counted == 1
    loop.round()
    assert loop.error is None and len(world.stored) == 2


def test_closing_ends_a_long_run_after_its_page(world):
    for number in range(30):
        world.upload(name=f"{number:032x}")
    loop = VacuumLoop(world.vacuum(page_files=1, listing_ms=1))
    loop._listed_at -= 1
    pages = []
    real = loop._continues

    def close_at_the_third(report):
        pages.append(report.removed.files)
        if len(pages) == 3:
            loop._is_closed = True
        return real(report)

    loop._continues = close_at_the_third
    loop.round()
    assert len(pages) == 3 and len(world.stored) > 20


def test_news_are_looked_at_after_a_pause_that_doubles_up_to_the_interval(world, monkeypatch):
    vacuum = world.vacuum(interval_ms=30_000, pause_ms=4_000)
    loop, waits = VacuumLoop(vacuum), []

    def wait_for(is_over, seconds):
        """The third wait is notified, the others time out."""
        waits.append(seconds)
        loop._is_notified = len(waits) == 3
        loop._is_closed = len(waits) >= 9
        return is_over()

    monkeypatch.setattr(loop._changed, "wait_for", wait_for)
    loop._run()
    assert waits == [30, 30, 30, 4, 4, 8, 16, 30, 30, 4]
