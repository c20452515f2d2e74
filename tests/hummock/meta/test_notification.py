"""Notifications: each subscriber receives every update once, in order; publish reports whether all did."""

import threading

import pytest

from hummock.meta.notification import NotificationService
from hummock.metrics import Metrics


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def service(metrics):
    return NotificationService(metrics, acknowledge_ms=5_000)


def test_updates_reach_the_subscribers_of_their_topic(service):
    versions, catalogs = [], []
    service.subscribe("versions", versions.append)
    held = service.subscribe("catalog", catalogs.append)
    assert service.publish("versions", 1)
    assert service.publish("catalog", "t")
    assert service.publish("versions", 2)
    assert (versions, catalogs, held.acknowledged) == ([1, 2], ["t"], 2)


def test_a_closed_subscription_is_not_notified(service):
    seen = []
    subscription = service.subscribe("x", seen.append)
    service.publish("x", 1)
    subscription.close()
    subscription.close()
    service.publish("x", 2)
    assert seen == [1]


def test_a_subscriber_that_raises_is_handed_the_update_again_and_the_others_go_on(service, metrics):
    seen, taken, faults = [], [], [MemoryError("one"), MemoryError("two"), MemoryError("three")]

    def short_of_memory(update):
        if faults:
            raise faults.pop(0)
        taken.append(update)

    failing = service.subscribe("x", short_of_memory)
    service.subscribe("x", seen.append)
    assert not service.publish("x", 1)                      # two attempts
    assert (seen, taken, failing.acknowledged, str(failing.error)) == ([1], [], 0, "two")
    assert service.deliver(1)                               # nothing new: the third attempt fails, the fourth succeeds
    assert (seen, taken, failing.acknowledged, failing.error) == ([1], [1], 1, None)
    assert service.publish("x", 2) and taken == seen == [1, 2]
    assert metrics.registry.get_sample_value("hummock_subscriber_failures_total") == 3


def test_a_newer_update_replaces_one_that_was_not_accepted(service):
    taken, broken = [], [True]

    def callback(update):
        if broken[0]:
            raise MemoryError
        taken.append(update)

    failing = service.subscribe("x", callback)
    assert not service.publish("x", 1) and not service.publish("x", 2)
    broken[0] = False
    assert service.publish("x", 3) and taken == [2, 3]
    assert failing.acknowledged == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_delivery_that_was_interrupted_is_taken_up_by_the_next_caller(service, error):
    one, two, faults = [], [], [error]

    def interrupted(update):
        if faults:
            raise faults.pop()
        one.append(update)

    service.subscribe("x", interrupted)
    service.subscribe("x", two.append)
    with pytest.raises(error):
        service.publish("x", 1)
    assert (one, two) == ([], [])
    assert service.deliver(1) and (one, two) == ([1], [1])


def test_threads_that_publish_keep_one_order_for_all(service):
    one, two = [], []
    service.subscribe("x", one.append)
    service.subscribe("x", two.append)
    lock = threading.Lock()
    counter = [0]

    def publish():
        for _ in range(200):
            with lock:      # HummockManager posts under the lock that orders its versions
                counter[0] += 1
                serial = service.post("x", counter[0])
            assert service.deliver(serial)
            assert serial <= len(one)

    threads = [threading.Thread(target=publish) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one == two == list(range(1, 1201))


def test_a_callback_may_publish_and_its_update_comes_after(service):
    seen = []

    def answer(update):
        seen.append(update)
        if update < 4:
            assert service.publish("x", update + 1) is False

    service.subscribe("x", answer)
    assert service.publish("x", 1)
    assert seen == [1, 2, 3, 4]


def test_a_subscriber_that_hangs_does_not_hold_a_publisher_for_ever(metrics):
    service = NotificationService(metrics, acknowledge_ms=50)
    hanging, release, seen = threading.Event(), threading.Event(), []

    def slow(update):
        hanging.set()
        release.wait(10)
        seen.append(update)

    service.subscribe("x", slow)
    first = threading.Thread(target=service.publish, args=("x", 1))
    first.start()
    hanging.wait(10)
    assert service.publish("x", 2) is False
    release.set()
    first.join()
    assert seen == [1, 2]
    assert service.publish("x", 3)
