"""A world for random programs: every step does the same to the store and to the model, or reads from both.

The writer's manager also compacts, into many small files and levels; vacuum deletes obsolete files; tables get
watermarks and are dropped; epochs are pinned, held and released. In between, invalid calls must be refused and change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hummock.base.key import KeyRange, table_id_of
from hummock.columnar.write_batch import WriteBatch
from hummock.compaction.executors import ThreadRunner
from hummock.compaction.subcompaction_planner import boundaries_of
from hummock.compaction.task import CompactTask, RangeResult, RangeSpec
from hummock.epoch import Epoch
from hummock.errors import (
    Fenced,
    InvalidEpoch,
    InvalidWriteBatch,
    RoleMissing,
    StoreClosed,
    TaskRefused,
    WaitEpochTimeout,
)
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.options import VacuumOptions
from tests.model.ruled_model import GOING, later_rules
from tests.model.store_processes import LEASE_MS, NODE, refused
from tests.model.world_reads import EVERYTHING, ConcurrentReaders, Reads, rows_of
from tests.support.worlds.manager_parts import cancel_task

LOCAL = b"local"        # keys of tables that are written locally only


class World(Reads):
    """A step is a method without arguments."""

    # -- writing -------------------------------------------------------------------------------------------

    def ingest(self) -> None:
        is_local = self.rng.random() < 0.05 and self.options.shared_buffer_bytes > 1_000
        drawn = {self.keys.draw() for _ in range(self.rng.choice((0, 1, 3, 30)))}
        if is_local or self.rng.random() < 0.05:
            drawn |= {LOCAL + key for key in drawn}
        keys = [key for key in sorted(drawn)
                if key.startswith(LOCAL) == is_local and table_id_of(key) not in self.writer.version.dropped_tables]
        sizes = [self.rng.choice((None, 0, 1, 9, 60)) for _ in keys]
        values = [None if size is None else self.rng.randbytes(size) for size in sizes]
        epoch = Epoch((max(self.epoch, self.sealed) + self.rng.randint(1, 3)) << 16)
        batch = WriteBatch(list(zip(keys, values, strict=True)))
        for store in (self.writer, self.model):
            store.ingest_batch(batch, epoch, local_only=is_local)
        self.keys.written += keys

    def seal(self) -> None:
        epoch = Epoch((self.sealed + self.rng.randint(1, 2)) << 16)
        for store in (self.writer, self.model):
            store.seal_epoch(epoch)

    def sync(self) -> None:
        if self.sealed > self.epoch:
            for store in (self.writer, self.model):
                store.sync(Epoch(self.sealed << 16))

    def commit(self) -> None:
        self.commit_rows()
        if self.rng.random() < 0.02 and self.epoch > 1:
            self.commit_to(self.epoch + 1, {GOING: None}, (GOING,))

    def commit_rows(self) -> None:
        """Commits, sometimes with new rules of a table or a watermark."""
        number = max(self.epoch + 1, self.sealed)
        is_ruled = self.model.ttl_ms and self.rng.random() < 0.5
        self.commit_to(number, later_rules(self.rng, self.model, self.keys, self.epoch, number) if is_ruled else {})

    def clear(self) -> None:
        for store in (self.writer, self.model):
            store.clear_uncommitted()

    def reopen(self) -> None:
        """Another process takes over the writer role; the old one may not have noticed yet."""
        self.leave(self.writer)
        if self.rng.random() < 0.3 and not self.zombies:
            self.zombies.append(self.writer)
        else:
            self.writer.close()
        self.writer = self.open_writer()
        self.model.clear_uncommitted()
        assert self.writer.committed_epoch == self.model.committed_epoch

    def reopen_reader(self) -> None:
        self.leave(self.reader)
        self.reader.close()
        self.reader = self.open_reader()

    # -- pins, compaction and vacuum -----------------------------------------------------------------------

    def pin(self) -> None:
        safe = self.pinner.refresh().safe_epoch >> 16
        if self.epoch >= safe and self.epoch > 0:
            number = self.rng.choice((self.epoch, self.rng.randint(safe, self.epoch)))
            self.pinner.pin_snapshot(NODE, Epoch(number << 16))
            self.pins[number] += 1

    def unpin(self) -> None:
        if self.pins:
            number = self.rng.choice(list(self.pins))
            self.pinner.unpin_snapshot(NODE, Epoch(number << 16))
            self.pins[number] -= 1
            self.pins = +self.pins
            if self.rng.random() < .5:
                self.pinner.renew_lease(NODE)       # publishes the unpin to other processes

    def compact(self) -> None:
        """Runs up to three tasks, some of which fail, are cancelled, or are reported twice."""
        self.compact_some()
        self.check_pins()
        self.read_all()

    def compact_some(self) -> None:
        manager = self.pinner if self.rng.random() < .5 else self.manager()
        if self.rng.random() < .05:
            manager.compact_range(KeyRange(min(bounds := [self.keys.draw(), self.keys.draw()]), max(bounds) or None))
        for _ in range(self.rng.randint(1, 3)):
            if (given := manager.get_compact_task("compactor")) is None:
                break
            task, token = given
            fate = self.rng.random()
            if fate < .1:
                manager.fail_task(task.id, token, "injected failure")
                self.clock.advance(5_000)
                self.renew()
                continue
            results = self.done(task, token)
            if fate < .2:
                cancel_task(manager, task.id)
                with refused(TaskRefused):
                    manager.report_compact_task(task.id, token, results)
                continue
            for _ in range(2 if fate < .4 else 1):
                manager.report_compact_task(task.id, token, results)

    def done(self, task: CompactTask, token: str) -> list[RangeResult]:
        """Runs the subcompactions one after another, or overlaps their prefetch, merge and upload."""
        runner = ThreadRunner(self.objects, threads=self.rng.choice((1, 2)), memory_bytes=1 << 20)
        return runner.run(self.in_ranges(task), token[:16])

    def in_ranges(self, task: CompactTask) -> list[RangeSpec]:
        """Splits the task into one or more ranges."""
        files = [info for part in task.inputs for info in part.sstables]
        cuts = boundaries_of(files, self.objects, max(1, task.input_bytes // self.rng.randint(1, 4)))
        return replace(task, cuts=cuts).ranges()

    def vacuum(self) -> None:
        self.vacuum_all()
        self.read_all()

    def vacuum_all(self) -> None:
        if self.rng.random() < .7:
            self.renew()
        Vacuum(self.meta, self.objects, self.clock, options=VacuumOptions(grace_ms=0, tombstone_ms=0)).run()

    def work_beside_readers(self) -> None:
        """Threads read one epoch in both processes during writes, commits, compaction and vacuum."""
        if self.epoch < self.pinner.refresh().safe_epoch >> 16 or self.epoch == 0:
            return
        self.follow()
        epoch = self.pinner.pin_snapshot(NODE, Epoch(self.epoch << 16))
        self.pins[epoch >> 16] += 1
        self.model.dropped = self.writer.version.dropped_tables
        rows = rows_of(self.model, EVERYTHING, epoch, None)
        with ConcurrentReaders([self.writer, self.reader], epoch, rows) as readers:
            for _ in range(3):
                self.ingest()
                self.commit_rows()
                self.compact_some()
                self.vacuum_all()
        assert readers.rounds >= 2
        self.read_all()

    def pass_time(self) -> None:
        """Advances the clock by less than a lease; live processes renew theirs."""
        self.clock.advance(self.rng.choice((1, 1_000, LEASE_MS - 1)))
        self.renew()

    def check_pins(self) -> None:
        version = self.pinner.refresh()
        assert all(number << 16 >= version.safe_epoch for number in self.pinned), (version, self.pinned)

    # -- invalid calls [P12] -------------------------------------------------------------------------------

    def misuse(self) -> None:
        """One invalid call, refused with its error. The steps that follow check that it changed nothing."""
        sealed, committed = Epoch(self.sealed << 16), Epoch(self.epoch << 16)
        future = Epoch((max(self.sealed, self.epoch) + 9) << 16)
        row = WriteBatch([(self.keys.draw(), b"never")])
        name, error, call = self.rng.choice([
            ("unsorted", InvalidWriteBatch, lambda: WriteBatch([(b"b", b""), (b"a", b"")])),
            ("repeated", InvalidWriteBatch, lambda: WriteBatch([(b"b", b""), (b"b", None)])),
            ("into what is sealed", InvalidEpoch, lambda: self.writer.ingest_batch(row, sealed)),
            ("into an impure epoch", InvalidEpoch, lambda: self.writer.ingest_batch(row, Epoch(future + 1))),
            ("into epoch 0", InvalidEpoch, lambda: self.writer.ingest_batch(row, Epoch(0))),
            ("sync of what is open", InvalidEpoch, lambda: self.writer.sync(future)),
            ("seal of less", InvalidEpoch, lambda: self.writer.seal_epoch(Epoch(sealed - (1 << 16)))),
            ("commit of less", InvalidEpoch, lambda: self.writer.commit(Epoch(committed - (1 << 16)))),
            ("commit without the role", RoleMissing, lambda: self.reader.commit(future)),
            ("write without the role", RoleMissing, lambda: self.reader.ingest_batch(row, future)),
            ("wait for the future", WaitEpochTimeout, lambda: self.reader.wait_epoch(future, 0)),
            ("pin of the future", InvalidEpoch, lambda: self.pinner.pin_snapshot(NODE, future)),
            ("report of nothing", TaskRefused, lambda: self.pinner.report_compact_task(1 << 40, "00" * 16, [])),
        ])
        if name == "seal of less" and self.sealed == 0:
            return
        with refused(error):
            call()

    def misuse_of_a_lost_role(self) -> None:
        """A fenced writer writes and commits: its rows never become visible."""
        if self.zombies:
            zombie = self.zombies.pop()
            epoch = Epoch(10_000 << 16)
            zombie.ingest_batch(WriteBatch([(self.keys.draw(), b"a zombie's")]), epoch)
            with refused(Fenced):
                zombie.commit(epoch)
            zombie.close()
            with refused(StoreClosed):
                zombie.get(b"", epoch)


STEPS: dict[Callable[[World], None], float] = {
    World.ingest: 12, World.seal: 2, World.sync: 2, World.commit: 8, World.clear: 0.5, World.reopen: 0.7,
    World.get: 5, World.get_many: 4, World.scan: 4, World.scan_under_a_prefix: 3, World.scan_prefixes: 3,
    World.scan_many: 3, World.changes: 4, World.follow: 3, World.begin_scan: 2, World.read_on: 4,
    World.take_snapshot: 1.5, World.release_snapshot: 1,
    World.reopen_reader: 0.7, World.work_beside_readers: 0.5,
    World.pin: 2, World.unpin: 2, World.compact: 7, World.vacuum: 2, World.pass_time: 1.5, World.misuse: 3,
    World.misuse_of_a_lost_role: 1,
}  # fmt: skip
