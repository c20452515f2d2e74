"""NotificationService: delivers changes of shared metadata to subscribers, in order, and waits for acknowledgement.

The push-style service of design document 002, "Push on Updates". Updates are posted under the lock that orders them and
delivered outside of it, one at a time, by whichever thread delivers first; a callback acknowledges by returning. If it
raises, the update is delivered to it again, at once and with every later delivery, until it accepts that update or a
newer one. Waiting is bounded: a subscriber that hangs delays its own updates, but not others' commits for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from hummock.metrics import Metrics

TRIES = 2       # per callback and update in one delivery: the first try may free the resources that it lacked


class TopicSubscription:
    """One callback on one topic, until `close`. `error`: why the newest update is not acknowledged, if it raised."""

    def __init__(self, service: NotificationService, topic: str, callback: Callable[[Any], None]):
        self.topic, self.callback = topic, callback
        self.error: Exception | None = None
        self.acknowledged = 0               # serial number of the last update for which the callback returned
        self.due: tuple[int, Any] | None = None     # serial number and update for which it has not returned yet
        self._service = service

    def close(self) -> None:
        """After this returns, no delivery begins; one may still be running."""
        self._service.drop(self)


class NotificationService:
    """Every subscriber of a topic gets its updates in the order of posting, and accepts none of them twice.

    REQUIRES of updates that each contains the complete state of its topic, so that a newer one replaces one that was
    not accepted; of callbacks that they can be called again with an update on which they raised, and take no lock under
    which another thread calls `publish` or `deliver`.
    """

    def __init__(self, metrics: Metrics, acknowledge_ms: int):
        self._metrics, self._timeout = metrics, acknowledge_ms / 1000
        self._condition = threading.Condition()
        self._queue: deque[tuple[int, str, Any]] = deque()
        self._subscriptions: list[TopicSubscription] = []
        self._posted = 0
        self._delivered = 0
        self._deliverer: int | None = None      # the thread that currently runs callbacks

    def subscribe(self, topic: str, callback: Callable[[Any], None]) -> TopicSubscription:
        """Delivers later updates to `callback`."""
        subscription = TopicSubscription(self, topic, callback)
        with self._condition:
            # Copied, not changed in place: a running delivery iterates over the old list.
            self._subscriptions = [*self._subscriptions, subscription]
        return subscription

    def drop(self, subscription: TopicSubscription) -> None:
        with self._condition:
            self._subscriptions = [other for other in self._subscriptions if other is not subscription]

    def publish(self, topic: str, update: Any) -> bool:
        """Posts and delivers."""
        return self.deliver(self.post(topic, update))

    def post(self, topic: str, update: Any) -> int:
        """Queues the update, without waiting; its serial number."""
        with self._condition:
            self._posted += 1
            self._queue.append((self._posted, topic, update))
            return self._posted

    def deliver(self, serial: int) -> bool:
        """Delivers queued updates; whether every subscriber has acknowledged all up to `serial`.

        False after the time limit, if a callback raised, and inside a callback, whose own thread delivers the rest
        afterwards.
        """
        with self._condition:
            if self._deliverer == threading.get_ident():
                return False
            self._condition.wait_for(lambda: self._is_delivered(serial) or self._deliverer is None, self._timeout)
            if self._is_delivered(serial):
                return True
            if self._deliverer is not None:
                return False
            self._deliverer = threading.get_ident()
        try:
            return self._deliver_all(serial)
        finally:                                # however a callback ended: the next caller continues
            with self._condition:
                if self._deliverer == threading.get_ident():
                    self._deliverer = None
                self._condition.notify_all()

    def _is_delivered(self, serial: int) -> bool:
        return self._delivered >= serial and all(one.due is None for one in self._subscriptions)

    def _deliver_all(self, serial: int) -> bool:
        for subscription in self._subscriptions:
            self._deliver(subscription)
        while True:
            with self._condition:
                if not self._queue:
                    self._deliverer = None
                    return self._is_delivered(serial)
                posted, topic, update = self._queue.popleft()
                receivers = [one for one in self._subscriptions if one.topic == topic]
                for subscription in receivers:
                    subscription.due = posted, update
                self._delivered = posted
            for subscription in receivers:
                self._deliver(subscription)
            with self._condition:
                self._condition.notify_all()

    def _deliver(self, subscription: TopicSubscription) -> None:
        """Delivers the subscriber's due update, if any. It stays due if the callback raises."""
        for _ in range(TRIES):
            if subscription.due is None:
                return
            serial, update = subscription.due
            try:
                subscription.callback(update)
            except Exception as error:          # the update is durable: not the publisher's failure
                subscription.error = error
                self._metrics.subscriber_failures.inc()
            else:
                subscription.acknowledged, subscription.due, subscription.error = serial, None, None
