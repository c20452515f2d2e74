"""VacuumLoop: vacuum in the background of a process that writes."""

from __future__ import annotations

import logging
import threading
from typing import Self

from hummock.base.closing import ClosedAtExit
from hummock.base.logs import Event
from hummock.epoch import monotonic_seconds
from hummock.errors import HummockError
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport

log = logging.getLogger(__name__)


class VacuumLoop(ClosedAtExit):
    """Removes obsolete files soon after `notify`, and lists all objects every `listing_ms`, on one thread of its own.

    The first round is `pause_ms` after `notify`; the pause doubles from round to round up to `interval_ms`, at which
    files are found that left a version in other processes. A round that fails is retried by the next; `error` is the
    error of the last one, None if it succeeded.
    """

    def __init__(self, vacuum: Vacuum):
        self.error: HummockError | None = None
        self.report: VacuumReport | None = None         # of the latest listing
        self._vacuum = vacuum
        self._changed = threading.Condition()
        self._is_notified = self._is_closed = False
        self._thread: threading.Thread | None = None
        self._listed_at = monotonic_seconds()

    def start(self) -> Self:
        """Starts the thread. REQUIRES that it was not started before."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="vacuum", daemon=True)
        self._thread.start()
        return self

    def round(self) -> None:
        """Runs one round; `HummockError`s are kept in `error` and counted."""
        try:
            if self._is_listing_due():
                report = self.report = self._vacuum.run(watch=self._continues)
                if not self._vacuum.is_under_way:
                    self._listed_at = monotonic_seconds()
            else:
                report = self._vacuum.remove_obsolete(watch=self._continues)
            self.error = None
            if report.removed.files:
                log.info(Event("vacuum done", files=report.removed.files, bytes=report.removed.bytes))
        except HummockError as error:
            log.warning(Event("vacuum failed", error=error))
            self.error = error
            self._vacuum.metrics.vacuum_failures.labels(type(error).__name__).inc()

    def notify(self) -> None:
        """Notifies the loop that files have left a version in this process."""
        with self._changed:
            self._is_notified = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread after its current page. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        options = self._vacuum.options
        pause_ms = options.interval_ms
        while not self._is_closed:
            self.round()
            with self._changed:
                is_notified = self._changed.wait_for(lambda: self._is_notified or self._is_closed, pause_ms / 1000)
                pause_ms = min(options.pause_ms if is_notified else 2 * pause_ms, options.interval_ms)
                if is_notified:
                    self._is_notified = False
                    self._changed.wait_for(lambda: self._is_closed, pause_ms / 1000)

    def _is_listing_due(self) -> bool:
        return (monotonic_seconds() - self._listed_at) * 1000 >= self._vacuum.options.listing_ms

    def _continues(self, report: VacuumReport) -> bool:
        return not self._is_closed
