"""StatementLedger: which DML statements are not yet committed, so that none is lost in silence (R14).

A statement that was acknowledged lies in some epoch; until that epoch is committed a recovery undoes it.
A recovery discards a whole interval of epochs, and epochs are never used again, so the epoch alone says
whether a statement was undone, whichever thread finds out first. What was acknowledged and undone is
named by the next `take_lost()`; who still waits for an answer gets StatementsLost as the answer."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from concurrent.futures import Future

from stream.errors import StatementsLost

MAX_UNCOMMITTED = 100_000
"""Statements that may wait for their commit; the next one waits until an epoch is committed."""
REMEMBERED_RECOVERIES = 64
"""Discarded intervals kept for statements that were being sent while a recovery ran."""


class StatementLedger:
    """Thread safe. Keeps ids and futures, never rows."""

    def __init__(self, max_uncommitted: int = MAX_UNCOMMITTED) -> None:
        self._max_uncommitted = max_uncommitted
        self._ids = itertools.count(1)
        self._uncommitted: dict[int, tuple[int, Future[int]]] = {}
        self._discarded: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_RECOVERIES)
        self._committed_epoch = 0
        self._lost: list[int] = []
        self._changed = threading.Condition()

    def next_id(self) -> int:
        """An id that no statement of this session has."""
        return next(self._ids)

    def place(self, statement_id: int, result: Future[int], epoch: int) -> None:
        """A statement was sent and lies in `epoch`. Waits while too many are uncommitted. StatementsLost if
        that epoch was discarded meanwhile."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._uncommitted) < self._max_uncommitted
                    or self._is_discarded(epoch)
                    or epoch <= self._committed_epoch
                )
            )
            if self._is_discarded(epoch):
                raise StatementsLost((statement_id,))
            if epoch > self._committed_epoch:
                self._uncommitted[statement_id] = (epoch, result)

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is durable."""
        with self._changed:
            self._committed_epoch = max(self._committed_epoch, epoch)
            done = [each for each, (of, _) in self._uncommitted.items() if of <= self._committed_epoch]
            for statement_id in done:
                del self._uncommitted[statement_id]
            self._changed.notify_all()

    def discard(self, after: int, upto: int) -> None:
        """Epochs in (after, upto] will never be committed. REQUIRES that no actor of them runs any more."""
        with self._changed:
            self._discarded.append((after, upto))
            undone = [each for each, (of, _) in self._uncommitted.items() if after < of <= upto]
            for statement_id in undone:
                _, result = self._uncommitted.pop(statement_id)
                if not result.done():
                    result.set_exception(StatementsLost((statement_id,)))
                elif result.exception() is None:
                    self._lost.append(statement_id)
            self._changed.notify_all()

    def take_lost(self) -> tuple[int, ...]:
        """Acknowledged statements that recoveries have undone since the last call, in the order sent."""
        with self._changed:
            lost, self._lost = tuple(sorted(self._lost)), []
            return lost

    def _is_discarded(self, epoch: int) -> bool:
        return any(after < epoch <= upto for after, upto in self._discarded)
