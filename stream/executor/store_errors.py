"""Stores the counts of an actor's rows without a value: the last executor of a fragment.

It follows all others, so at a barrier it commits what they counted in the epoch that ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from stream.error_counts import StoredErrorCounts
from stream.executor.base import Executor, first_barrier
from stream.message import Barrier, Message


class StoreErrorsExecutor(Executor):
    """Passes on the messages of `input`; commits `errors` at each barrier."""

    def __init__(self, input: Executor, errors: StoredErrorCounts) -> None:
        self.info = input.info
        self._input = input
        self._errors = errors

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._errors.init_epoch(barrier.epoch)
        yield barrier
        for message in messages:
            if isinstance(message, Barrier):
                self._errors.commit(message.epoch)
            yield message
