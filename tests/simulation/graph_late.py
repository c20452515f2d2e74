"""Late rows of simulated graphs: what the readers of a job had read at each barrier, and which rows are late by that.

A row is late if it is below the watermark at the last barrier before it was read [R29]. So chunks do not matter, while
it does matter in which epoch a row was read, and that depends on the turns of threads: it is recorded. `installed`
notes, whenever an actor passes a barrier, the offset of each of its splits, which of them have ended, and which were
idle; and of which epoch all actors had reported by then, for an actor applies the watermark of that epoch, whichever
its own is. All else is computed here, from the rows of the scripts: the greatest value of each split, the watermark,
the rows below it. That is the one freedom that the definition leaves: the sets of rows that the epochs have, and the
epoch whose watermark an actor of several has heard of. A view must hold its query over all rows that are not late then,
and no others, and SHOW ERRORS must count the others.

What was recorded in epochs that were never committed is void: those after the epoch at which the next actors begin,
and those after the one at which a job was set aside.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from stream.executor.source_watermark import SourceWatermark, SplitReport
from stream.executor.watermark_filter import WatermarkFilterExecutor
from tests.simulation.graph_source import DELAY, Script

LeftOut = Sequence[tuple[str, int, int]]


@dataclass(frozen=True)
class _Seen:
    """A split at a barrier."""

    offset: int
    is_ended: bool
    is_awaited: bool


@dataclass
class _Report:
    """Of one actor at one barrier. `heard`: the newest epoch that all actors had reported, 0: none."""

    number: int
    splits: Mapping[str, _Seen]
    heard: int = 0


@dataclass(eq=False)
class _Generation:
    """The actors of a source from their first barrier, which ended epoch `since`, to their end."""

    shared: SourceWatermark
    actors: int
    since: int
    reports: dict[int, list[_Report]] = field(default_factory=lambda: defaultdict(list))  # by epoch, ascending
    heard: int = 0
    last: int | None = None  # the epoch after which its reports are void

    def add(self, epoch: int, report: _Report) -> None:
        """The report of an actor."""
        if self.last is not None and epoch > self.last:
            return
        reports = self.reports[epoch]
        reports.append(report)
        if len(reports) == self.actors:
            self.heard = epoch
        report.heard = self.heard

    def cut(self, epoch: int) -> None:
        """The reports after `epoch` are void, also those that are still to come."""
        self.last = epoch if self.last is None else min(self.last, epoch)
        for each in [each for each in self.reports if each > epoch]:
            del self.reports[each]


@dataclass
class _Judge:
    """Goes through the reports of one job about one source, and keeps what it knows: `upto` an epoch."""

    upto: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    offsets_at: dict[int, dict[str, int]] = field(default_factory=dict)  # by epoch, ascending
    greatest: dict[str, int] = field(default_factory=dict)
    late: dict[tuple[str, int], int] = field(default_factory=dict)  # split and record -> the epoch that read it
    bound: int | None = None  # the greatest of any actor
    at_epoch: dict[int, int | None] = field(default_factory=dict)  # bounds of epochs that all actors have reported
    bounds: dict[int, int | None] = field(default_factory=dict)  # of the actors
    generation: _Generation | None = None

    def begin(self, generation: _Generation) -> None:
        """New actors continue with the greatest bound of those before."""
        self.bound = max((each for each in (self.bound, *self.bounds.values()) if each is not None), default=None)
        self.bounds = dict.fromkeys(range(generation.actors), self.bound)
        self.at_epoch = {0: self.bound}
        self.generation = generation

    def read(self, script: Script, epoch: int, reports: Sequence[_Report], left_out: LeftOut) -> None:
        """The epoch of some actors, or of all of them: only then the watermark may move."""
        assert self.generation is not None
        for report in reports:
            for split, seen in report.splits.items():
                self._read_split(script, split, seen.offset, epoch, self.bounds[report.number], left_out)
        last = next(reversed(self.at_epoch.values()))
        if len(reports) == self.generation.actors:
            self.at_epoch[epoch] = _greater(last, self._bound_of(reports))
        for report in reports:
            self.bounds[report.number] = _greater(self.bounds[report.number], self.at_epoch[report.heard])
        self.offsets_at[epoch] = dict(self.offsets)
        self.upto = epoch

    def _read_split(
        self, script: Script, split: str, end: int, epoch: int, bound: int | None, left_out: LeftOut
    ) -> None:
        begin = self.offsets.get(split, 0)
        assert begin <= end, f"{split} of {script.name} was read up to {begin}, and now to {end}"
        for number in range(begin, end):
            if any(split == name and first <= number < last for name, first, last in left_out):
                continue
            for _, (_, at, _) in script.splits[split].records[number]:
                if at is None:
                    continue
                if bound is not None and at < bound - DELAY:
                    self.late.setdefault((split, number), epoch)
                self.greatest[split] = max(self.greatest.get(split, at), at)
        self.offsets[split] = end

    def _bound_of(self, reports: Sequence[_Report]) -> int | None:
        splits = {name: seen for report in reports for name, seen in report.splits.items()}
        awaited = [self.greatest.get(name) for name, seen in splits.items() if seen.is_awaited]
        if awaited:
            return None if None in awaited else min(each for each in awaited if each is not None)
        ended = [self.greatest[name] for name, seen in splits.items() if seen.is_ended and name in self.greatest]
        return max(ended, default=None)


class ReadingLog:
    """What was read at each barrier, of all jobs, by the id of the state table of the watermark. Thread safe; `lock`
    keeps splits from ending while an actor looks at several."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._generations: dict[int, list[_Generation]] = defaultdict(list)
        self._of_shared: dict[int, _Generation] = {}
        self._judges: dict[int, _Judge] = defaultdict(_Judge)
        self._pending: dict[tuple[int, int], Mapping[str, _Seen]] = {}

    # -- what actors do --------------------------------------------------------------------------------

    def begin(self, executor: WatermarkFilterExecutor) -> None:
        """An actor has its first barrier."""
        shared, table = executor._shared, executor._table
        with self.lock:
            known = self._generations[table.catalog.id]
            if known and known[-1].shared is shared:
                return
            since = table.epoch.prev
            self.cut(table.catalog.id, since)
            known.append(_Generation(shared, shared._actors, since))
            self._of_shared[id(shared)] = known[-1]

    def look(self, executor: WatermarkFilterExecutor) -> None:
        """An actor is about to report its splits."""
        source = executor._source
        awaited = set(source.awaited_splits(executor._idle_seconds))
        self._pending[id(executor._shared), executor._number] = {
            split.rsplit("/")[-1]: _Seen(
                int(source._readers[split].offset), source.has_ended(split), split in awaited)
            for split in source.splits
        }

    def report(self, shared: SourceWatermark, number: int, epoch: int) -> None:
        """Actor `number` reports the end of `epoch`."""
        self._of_shared[id(shared)].add(epoch, _Report(number, self._pending.pop((id(shared), number))))

    def cut(self, table_id: int, epoch: int) -> None:
        """The job has, or will have, other actors: what it read after `epoch` is void."""
        with self.lock:
            for generation in self._generations[table_id]:
                generation.cut(epoch)

    # -- which rows are late ---------------------------------------------------------------------------

    def late(self, table_id: int, epoch: int, script: Script, left_out: LeftOut) -> set[tuple[str, int]]:
        """(split, record) of the late rows that were read by the end of `epoch`, which is committed."""
        with self.lock:
            judge = self._judges[table_id]
            for generation in self._generations[table_id]:
                wanted = [each for each in generation.reports if judge.upto < each <= epoch]
                if wanted and judge.generation is not generation:
                    judge.begin(generation)
                for each in sorted(wanted):
                    judge.read(script, each, generation.reports[each], left_out)
                    del generation.reports[each]
            return {record for record, read_in in judge.late.items() if read_in <= epoch}

    def offsets(self, table_id: int, epoch: int) -> dict[str, int]:
        """Of the splits, at the end of `epoch`. REQUIRES that `late` was asked for it or a later one."""
        known = self._judges[table_id].offsets_at
        epochs = [each for each in known if each <= epoch]
        return known[epochs[-1]] if epochs else {}


def _greater(known: int | None, found: int | None) -> int | None:
    return max((each for each in (known, found) if each is not None), default=None)


@contextmanager
def installed(log: ReadingLog) -> Iterator[None]:
    """Readers are recorded inside."""
    load, look, report = WatermarkFilterExecutor._load, WatermarkFilterExecutor._report, SourceWatermark.report

    def loaded(self: WatermarkFilterExecutor) -> None:
        load(self)
        log.begin(self)

    def looked(self: WatermarkFilterExecutor) -> SplitReport:
        with log.lock:
            log.look(self)
            return look(self)

    def reported(self: SourceWatermark, number: int, epoch: int, splits: SplitReport) -> int | None:
        with log.lock:
            log.report(self, number, epoch)
            return report(self, number, epoch, splits)

    WatermarkFilterExecutor._load = loaded  # type: ignore[method-assign]
    WatermarkFilterExecutor._report = looked  # type: ignore[method-assign]
    SourceWatermark.report = reported  # type: ignore[method-assign]
    try:
        yield
    finally:
        WatermarkFilterExecutor._load, WatermarkFilterExecutor._report = load, look  # type: ignore[method-assign]
        SourceWatermark.report = report  # type: ignore[method-assign]
