"""HeldReads: how long the files of planned reads are kept, judged by the queries that Spark runs.

Spark plans the read of a Python data source once per frame, keeps the plan, and does not notify the source when a query
of the frame begins or ends. What it reports is which queries run, when they began, and the attribute ids of the scans
in their plans: an id belongs to one frame. From these it is concluded which queries a read may belong to; where that is
not certain, a read is kept longer than necessary, never shorter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hummock.base.closing import ClosedAtExit

STARTS_MS = 60_000      # longest time from the planning of a read to the start of its query
ENDED_MS = 30_000       # from the end of a query of a frame to the start of the next one
KNOWN_SCANS = 20_000


@dataclass(frozen=True, slots=True)
class Query:
    """A query or job of the application. `scans`: the ids of the scans of tables in its plan; None: unknown."""

    name: str
    began_ms: int
    ended_ms: int | None            # None: it runs
    scans: frozenset[int] | None


@dataclass(slots=True, eq=False)
class HeldRead:
    """`table` is pinned for a read planned at `planned_ms`; `scans`: those that may be of its frame."""

    table: ClosedAtExit
    planned_ms: int
    least_ms: int                   # it is kept at least until then
    scans: set[int] = field(default_factory=set)

    def may_begin(self, query: Query) -> bool:
        """Whether `query` may be one of the first of the read's frame."""
        is_over = query.ended_ms is not None and query.ended_ms < self.planned_ms
        return not is_over and query.began_ms <= self.planned_ms + STARTS_MS

    def is_read_by(self, query: Query) -> bool:
        if query.scans is None:
            return query.began_ms >= self.planned_ms
        return not query.scans.isdisjoint(self.scans)


class HeldReads:
    """The tables of planned reads; closes each when no query can need it any more. Not thread safe."""

    def __init__(self, now_ms: Callable[[], int]):
        self._now_ms = now_ms
        self._reads: list[HeldRead] = []
        self._first: OrderedDict[int, Query] = OrderedDict()     # the first query with a scan, by scan

    def __len__(self) -> int:
        return len(self._reads)

    def add(self, table: ClosedAtExit, held_ms: int = 0) -> None:
        """Keeps `table`, at least for `held_ms`, and until the queries of its frame have ended."""
        now_ms = self._now_ms()
        self._reads.append(HeldRead(table, now_ms, now_ms + max(held_ms, STARTS_MS)))

    def review(self, queries: Iterable[Query]) -> None:
        """Closes what is not needed. `queries`: all that run, and those that ended since the last call."""
        found = sorted(queries, key=lambda query: query.began_ms)
        for query in found:
            self._remember(query)
        kept = []
        for read in self._reads:
            for query in found:
                self._attribute(read, query)
            if self._now_ms() > read.least_ms:
                read.table.close()
            else:
                kept.append(read)
        self._reads = kept

    def expire(self, held_ms: int) -> None:
        """Closes what was planned more than `held_ms` ago: to be called where it is not known what runs."""
        for read in self._reads:
            if self._now_ms() > max(read.least_ms, read.planned_ms + held_ms):
                read.table.close()
        self._reads = [read for read in self._reads
                       if self._now_ms() <= max(read.least_ms, read.planned_ms + held_ms)]

    def close(self) -> None:
        """Closes all. Idempotent."""
        for read in self._reads:
            read.table.close()
        self._reads.clear()

    def _remember(self, query: Query) -> None:
        for scan in query.scans or ():
            first = self._first.get(scan)
            if first is None or first.name == query.name:
                self._first[scan] = query
        while len(self._first) > KNOWN_SCANS:
            self._first.popitem(last=False)

    def _attribute(self, read: HeldRead, query: Query) -> None:
        """Extends the time of `read` if `query` may read it. A scan that was in a query which ended before the read was
        planned is of another frame."""
        if query.scans and read.may_begin(query):
            firsts = ((scan, self._first.get(scan, query)) for scan in query.scans)
            read.scans.update(scan for scan, first in firsts if read.may_begin(first))
        if read.is_read_by(query):
            used_ms = self._now_ms() if query.ended_ms is None else query.ended_ms
            read.least_ms = max(read.least_ms, used_ms + ENDED_MS)
