"""Delivering threads: order, retries, targets that hang, what a sink is behind by."""

from __future__ import annotations

import threading

import pytest

from hummock.epoch import to_unix_ms
from stream.connector.sink import SinkTarget
from stream.connector.sink_log import LogBatch, SinkProgress
from stream.sink_delivery import FIRST_RETRY_SECONDS, DeliveryStatus, SinkDelivery
from tests.support.drivers.waiting import SOON_SECONDS, eventually


class Log:
    """A log in memory: epoch -> its changes, any objects."""

    def __init__(self):
        self.batches = {}

    def closed(self, after):
        return [LogBatch(epoch, 0, 1, len(rows), 10 * len(rows)) for epoch, rows in sorted(self.batches.items())
                if epoch > after]

    def changes(self, batch):
        yield from self.batches[batch.epoch]


class Target(SinkTarget):
    def __init__(self, world):
        self.world = world

    def deliver(self, epoch, changes):
        self.world.calls.append(epoch)
        found = list(changes)
        self.world.may_go_on.wait(SOON_SECONDS)
        if self.world.failures:
            raise self.world.failures.pop()
        self.world.found.append((epoch, found))

    def close(self):
        self.world.closed += 1


class World:
    def __init__(self):
        self.log, self.progress = Log(), SinkProgress()
        self.calls, self.found, self.failures, self.opened, self.closed = [], [], [], 0, 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.delivery = SinkDelivery("s", self.progress, self.log, self.open, lambda: to_unix_ms(10_000 << 16))

    def open(self):
        self.opened += 1
        return Target(self)

    def add(self, epoch, *rows):
        self.log.batches[epoch] = rows
        self.delivery.notify()


@pytest.fixture
def world():
    made = World()
    made.delivery.start()
    yield made
    made.may_go_on.set()
    made.delivery.stop()
    assert made.delivery.join(SOON_SECONDS) and made.closed == made.opened


def test_batches_are_delivered_in_order_and_once(world):
    for epoch in range(1, 50):
        world.add(epoch, epoch, -epoch)
    assert world.delivery.wait_idle(SOON_SECONDS)
    assert world.found == [(epoch, [epoch, -epoch]) for epoch in range(1, 50)]
    assert world.progress.delivered == 49 and world.opened == 1
    world.delivery.notify()
    assert world.delivery.wait_idle(SOON_SECONDS) and len(world.found) == 49


def test_what_was_delivered_before_is_not_delivered_again(world):
    world.progress.delivered = 5
    world.log.batches = {5: ("old",)}
    world.add(6, "new")
    assert world.delivery.wait_idle(SOON_SECONDS) and world.found == [(6, ["new"])]


def test_a_failed_delivery_is_shown_and_repeated_before_later_ones(world):
    world.failures = [ValueError("no room"), OSError("no route")]
    world.add(1, "a")
    eventually(lambda: world.delivery.status().error is not None)
    assert not world.delivery.wait_idle(FIRST_RETRY_SECONDS / 10)
    world.add(2, "b")
    eventually(lambda: world.found == [(1, ["a"]), (2, ["b"])])
    assert world.calls == [1, 1, 1, 2] and world.opened == 3
    eventually(lambda: world.delivery.status().error is None)


def test_the_status_says_how_far_the_sink_is_behind(world):
    world.may_go_on.clear()
    assert world.delivery.status() == DeliveryStatus()
    world.add(9_000 << 16, 1, 2)
    world.add(9_500 << 16, 3)
    eventually(lambda: world.calls)
    assert world.delivery.status() == DeliveryStatus(3, 30, 1_000)
    assert not world.delivery.wait_idle(0.01)
    world.may_go_on.set()
    assert world.delivery.wait_idle(SOON_SECONDS)
    assert world.delivery.status() == DeliveryStatus(delivered_epoch=9_500 << 16)


def test_a_target_that_hangs_holds_up_neither_notify_nor_stop():
    world = World()
    world.delivery.start()
    world.may_go_on.clear()
    world.add(1, "a")
    eventually(lambda: world.calls)
    world.add(2, "b")
    world.delivery.stop()
    assert not world.delivery.join(0.01)
    world.may_go_on.set()
    assert world.delivery.join(SOON_SECONDS)
    assert world.calls == [1] and world.closed == 1


def test_a_stop_ends_a_delivery_between_two_batches():
    world = World()
    world.delivery.start()
    reached, stopped = threading.Event(), threading.Event()

    def endless():
        yield 1
        reached.set()
        stopped.wait(SOON_SECONDS)
        yield 2

    world.log.changes = lambda batch: endless()
    world.add(1, "a")
    assert reached.wait(SOON_SECONDS)
    world.delivery.stop()
    stopped.set()
    assert world.delivery.join(SOON_SECONDS) and world.found == [] and world.progress.delivered == 0
