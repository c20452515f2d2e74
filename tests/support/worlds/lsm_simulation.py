"""Simulates an LSM tree without data: commits and compactions as sizes and key ranges, with the real pickers.

Keys are random and distinct, so that a task writes as much as it reads. Rows arrive at INGEST bytes a second, less the
delay of backpressure, and compaction writes COMPACT bytes a second, shared by the running tasks.
"""

import random
from dataclasses import dataclass

from hummock.compaction.picker import pick_compaction
from hummock.compaction.picker.candidate import CompactionCandidate, codec_for, files_of
from hummock.epoch import Epoch
from hummock.sstable.info import SstableInfo
from hummock.store.backpressure import level0_delay_seconds
from hummock.version import HummockVersion, RunAddition, VersionDelta

ROW_BYTES = 120
INGEST, COMPACT = 400 << 20, 800 << 20
KEY_SPACE = 1 << 64


@dataclass
class Work:
    """A running task."""

    pick: CompactionCandidate
    left: float             # bytes still to be written

    @property
    def inputs(self):
        return self.pick.inputs

    @property
    def target_level(self):
        return self.pick.target_level


class TreeSimulation:
    """`written`: all bytes ever written; `ingested`: bytes of committed rows."""

    def __init__(self, options, *, rows_per_commit=100_000, tasks_at_once=2, compact=COMPACT, is_sequential=False,
                 flush_codec="none", seed=0):
        self.options, self.rows_per_commit, self.flush_codec = options, rows_per_commit, flush_codec
        self.tasks_at_once, self.compact_rate, self.is_sequential = tasks_at_once, compact, is_sequential
        self.version, self.running, self.rng = HummockVersion(), [], random.Random(seed)
        self.next_id, self.next_key = 1, 0
        self.written = self.ingested = 0
        self.most_runs = self.tasks = self.moves = 0
        self.largest_task = self.most_stored = 0
        self.seconds = self.delayed = 0.0

    @property
    def runs(self):
        return len(self.version.levels[0].runs)

    @property
    def runs_of_a_key(self):
        """The average number of level-0 runs that may contain a key, over evenly spaced keys."""
        keys = [(KEY_SPACE // 100 * number).to_bytes(8, "big") for number in range(1, 100)]
        return sum(bool(run.covering(key, key)) for run in self.version.levels[0].runs for key in keys) / len(keys)

    @property
    def stored_bytes(self):
        """Bytes of the version, plus the output of running tasks."""
        writing = sum(info.data_bytes for work in self.running for info in files_of(work))
        return sum(level.data_bytes for level in self.version.levels) + writing

    def commit(self):
        """Ingests the rows of one sync, and compacts for the time that this takes."""
        count = self.rows_per_commit
        if self.is_sequential:
            low, self.next_key = self.next_key, self.next_key + count
            high = self.next_key - 1
        else:
            low, high = 0, KEY_SPACE - 1
        size = count * ROW_BYTES
        added = self.files(size, low, high, self.flush_codec)
        self.step(added=(RunAddition(0, self.next_id - 1, added),), epoch=self.version.max_committed_epoch + (1 << 16))
        self.ingested += size
        self.written += size
        self.most_runs = max(self.most_runs, self.runs)
        delay = level0_delay_seconds(self.version, self.options, size)
        self.delayed += delay
        self.seconds += delay + size / INGEST
        self.compact((delay + size / INGEST) * self.compact_rate)

    def compact(self, budget):
        while self.start():
            pass
        while self.running and budget > 0:
            share = min([budget / len(self.running), *(work.left for work in self.running)])
            budget -= share * len(self.running)
            for work in self.running:
                work.left -= share
            for work in [work for work in self.running if work.left <= 0]:
                self.finish(work)
            while self.start():
                pass

    def settle(self):
        """Compacts until nothing is due."""
        while self.running or self.start():
            left = sum(work.left for work in self.running)
            self.seconds += left / self.compact_rate
            self.compact(left)

    def start(self):
        if len(self.running) >= self.tasks_at_once:
            return False
        work = pick_compaction(self.version, self.running, self.options, Epoch(self.version.max_committed_epoch))
        if work is None:
            return False
        if isinstance(work, CompactionCandidate):
            size = sum(info.data_bytes for info in files_of(work))
            self.tasks += 1
            self.largest_task = max(self.largest_task, size)
            self.running.append(Work(work, size))
            self.most_stored = max(self.most_stored, self.stored_bytes)
        else:
            self.moves += 1
            self.step(removed=work.removed, added=work.added)
        return True

    def finish(self, work):
        self.running.remove(work)
        inputs = list(files_of(work))
        size = sum(info.data_bytes for info in inputs)
        low = min(int.from_bytes(info.smallest, "big") for info in inputs)
        high = max(int.from_bytes(info.largest, "big") for info in inputs)
        added = self.files(size, low, high, codec_for(work.pick, self.options))
        self.step(removed=tuple(info.id for info in inputs),
                  added=(RunAddition(work.pick.target_level, work.pick.target_run, added),))
        self.written += size

    def files(self, size, low, high, codec):
        """Disjoint files of about equal size over the keys from low to high."""
        count = max(1, round(size / self.options.sstable_bytes))
        bounds = [low + (high - low) * index // count for index in range(count + 1)]
        made = []
        for index in range(count):
            part = size // count
            made.append(SstableInfo(f"{self.next_id:032x}", (bounds[index] + (index > 0)).to_bytes(8, "big"),
                                    bounds[index + 1].to_bytes(8, "big"), max(1, part // ROW_BYTES), part, part, (1,),
                                    1 << 16, 1 << 16, codec=codec, id=self.next_id))
            self.next_id += 1
        return tuple(made)

    def step(self, added=(), removed=(), epoch=None):
        version = self.version
        delta = VersionDelta(version.id + 1, epoch or version.max_committed_epoch, version.safe_epoch, added, removed)
        self.version = version.apply(delta)

    @property
    def amplification(self):
        return self.written / self.ingested

    def __str__(self):
        levels = " ".join(f"L{level.number}:{level.data_bytes >> 20}M/{len(level.runs)}" for level in
                          self.version.levels if level.runs)
        return (f"{self.seconds:.1f} s, {self.delayed:.1f} of them delayed, "
                f"write amplification {self.amplification:.2f}, most runs {self.most_runs}, tasks {self.tasks}, "
                f"moves {self.moves}, largest {self.largest_task >> 20}M, {levels}")
