"""The watermark of a source that several actors read, each some of its splits.

The bound of a source is the least of the greatest values of its splits; the watermark is a constant delay below it. A
split that has brought no row yet holds the bound back. A split that has ended, or has brought nothing for a while, is
left out; once all splits have ended or are idle, the bound is the greatest value of those that have ended [R29].

Each actor reports its splits at each barrier, and gets the bound of the newest epoch that all actors have reported. So
the bounds of two actors may differ for a while. This is harmless: an actor drops rows below its own watermark, and the
receiver of rows from several actors takes the least of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The splits of one actor at a barrier. `is_held`: one that may bring rows has brought none yet. `least`: the least
    of the greatest values of those that may bring rows, None if there are none. `ended`: the greatest value of those
    that have ended, None if there are none."""

    is_held: bool = False
    least: int | None = None
    ended: int | None = None


class SourceWatermark:
    """Shared by the `actors` actors of one source, from their first barrier until they end. Thread safe."""

    def __init__(self, actors: int) -> None:
        self._actors = actors
        self._lock = Lock()
        self._bound: int | None = None
        self._reports: dict[int, dict[int, SplitReport]] = {}  # epoch -> actor number -> report

    def restore(self, bound: int) -> None:
        """The bound was `bound` before."""
        with self._lock:
            self._bound = raised(self._bound, bound)

    def report(self, number: int, epoch: int, report: SplitReport) -> int | None:
        """Adds the report of actor `number` at the barrier that ends `epoch`; returns the bound, None before there is
        one. It never falls. REQUIRES ascending epochs from each actor."""
        with self._lock:
            reports = self._reports.setdefault(epoch, {})
            reports[number] = report
            if len(reports) == self._actors:
                del self._reports[epoch]
                found = _bound_of(reports.values())
                if found is not None:
                    self._bound = raised(self._bound, found)
            return self._bound


def raised(known: int | None, value: int) -> int:
    """The greater one; `value` if nothing was known."""
    return value if known is None else max(known, value)


def _bound_of(reports: Iterable[SplitReport]) -> int | None:
    """The bound by the reports of all actors; None if they give none."""
    reports = tuple(reports)
    if any(report.is_held for report in reports):
        return None
    least = [report.least for report in reports if report.least is not None]
    ended = [report.ended for report in reports if report.ended is not None]
    return min(least) if least else max(ended, default=None)
