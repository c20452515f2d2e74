"""A race for files: a writer, a compactor, pinning readers, vacuums, and a clock that jumps, over one store on disk.

The content of an object is its name, so that a reader can verify the files of its pinned version. Ordinary steps of
the clock are much shorter than a lease; it may jump back at any moment; before it jumps forward by more than half a
lease, the era changes. Within an era nothing renewed in it may be lost: a missing file, a refused commit or an expired
pin is a violation. Across eras a loss must be reported as an expired lease.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hummock.errors import ObjectNotFound, PreconditionFailed, SnapshotExpired, SstableRefused
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import OBSOLETE, TASK, UPLOADS, VACUUMED
from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.store.sqlite import SqliteMetaStore
from hummock.meta.upload_registry import PREFIX_SECONDS, UploadRegistry
from hummock.meta.vacuum.references import Need
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.meta.version_log import append, load
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.local import LocalObjectStore
from hummock.options import MetaOptions, VacuumOptions
from hummock.version import RunAddition, VersionDelta
from tests.support.worlds.manager_parts import Files, epoch_of

LEASE_MS = 30_000
EPOCHS_LIMIT = 50
ROOT = Path(__file__).resolve().parents[2]


class Violation(AssertionError):
    """A guarantee was broken."""


class SharedClock:
    """Milliseconds and the era, in a file mapped by several processes."""

    def __init__(self, path, start_ms=None):
        if start_ms is not None:
            path.write_bytes(struct.pack("<qq", start_ms, 0))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 16)).cast("q")
        self._forward = 0               # since the era began

    def __call__(self):
        return self._words[0]

    @property
    def era(self):
        return self._words[1]

    def move(self, milliseconds):
        self._forward += max(0, milliseconds)
        if self._forward > LEASE_MS // 2:
            self._words[1] += 1
            self._forward = 0
        self._words[0] += milliseconds


class Stores:
    """The stores, as each party of the race opens them."""

    def __init__(self, directory):
        self.meta_store = SqliteMetaStore(directory / "meta.sqlite", create=True, busy_timeout_ms=60_000)
        self.objects = LocalObjectStore(directory / "objects")

    def manager(self, clock, rng):
        return HummockManager(self.meta_store, self.objects, clock, random_bytes=rng.randbytes,
                              options=MetaOptions(lease_ms=LEASE_MS, transaction_attempts=200, checkpoint_deltas=9))

    def put(self, name):
        for path in (sstable_data_path(name), sstable_meta_path(name)):
            self.objects.put(path, path.encode(), if_absent=True)

    def check(self, version):
        """Reads all files of the version; `ObjectNotFound` if one is missing, `Violation` if its content differs."""
        for info in version.sstables:
            for path in (sstable_data_path(info.name), sstable_meta_path(info.name)):
                if self.objects.get(path) != path.encode():
                    raise Violation(f"{path} has other bytes")


class Reader:
    """Pins versions and reads their files repeatedly while it holds them.

    After a clock jump it may sleep until vacuums have run, which set `cleaned`.
    """

    def __init__(self, stores, clock, rng, node, cleaned=None):
        self.stores, self.clock, self.rng, self.node, self.cleaned = stores, clock, rng, node, cleaned
        self.manager = stores.manager(clock, rng)
        self.held, self.row_era, self.done = [], -1, Counter()

    def step(self):
        try:
            era = self.clock.era
            if self.cleaned is not None and era != self.row_era != -1 and self.rng.random() < .7:
                for _ in range(2):      # the first may have read the leases before the jump
                    self.cleaned.clear()
                    self.cleaned.wait(1)
            if self.rng.random() < (.2 if era == self.row_era else .6):
                self.manager.renew_lease(self.node)
                self.row_era = era
            if len(self.held) < 6 and (not self.held or self.rng.random() < .5):
                self.manager.refresh()
                self.held.append(self.manager.pin_version(self.node))
            version = self.rng.choice(self.held)
            self.stores.check(version)
            self.done["reads"] += 1
            self.done["of older versions"] += version.id < self.manager.version.id
            if len(self.held) > 1 and self.rng.random() < .3:
                del self.held[0]
                self.manager.unpin_version_before(self.node, self.held[0].id)
        except SnapshotExpired as error:
            self.lose(error)
        except ObjectNotFound as error:
            self.lose(error)
            with suppress(SnapshotExpired):
                self.manager.renew_lease(self.node)
                raise Violation(f"{self.node}: {error} although its lease was never removed") from error

    def lose(self, error):
        if self.clock.era == self.row_era:
            raise Violation(f"{self.node} lost what it had pinned in era {self.row_era}: {error!r}") from error
        self.done["expired"] += 1
        self.held, self.row_era = [], -1

    def close(self):
        self.manager.close()


class Writer:
    """Uploads files, commits them some epochs later, abandons some, and is sometimes replaced."""

    def __init__(self, stores, clock, seed):
        self.stores, self.clock, self.rng, self.files = stores, clock, random.Random(f"writer {seed}"), Files(seed)
        self.done, self.number = Counter(), 0
        self.begin()

    def begin(self):
        """A new process claims the writer role; uncommitted files of the old one become orphans."""
        self.manager = self.stores.manager(self.clock, self.rng)
        self.session = self.manager.claim_writer()
        self.node = f"writer-{self.session.generation}"
        self.seconds = 0.0              # the clock of the registry
        self.registry = UploadRegistry(self.manager, self.node, self.rng.randbytes, lambda: self.seconds)
        self.staged = []                # (name, era of its registration)
        self.row_era = -1

    def step(self):
        era = self.clock.era
        if era != self.row_era and self.rng.random() < .7:
            self.registry.renew()
            self.row_era = era
        for _ in range(self.rng.choice([1, 1, 2])):
            name = self.registry.mint()
            self.stores.put(name)
            self.staged.append((name, self.row_era))
        if self.rng.random() < .1:
            self.registry.settle([self.staged.pop(self.rng.randrange(len(self.staged)))[0]])
            self.done["given up"] += 1
        if self.rng.random() < .05:
            self.seconds += PREFIX_SECONDS
        self.commit([item for item in self.staged if self.rng.random() < .5])
        if self.rng.random() < .01:
            self.begin()
            self.done["replaced"] += 1

    def commit(self, chosen):
        self.number += 1
        while True:
            infos = [self.files.make(self.number, name=name) for name, _ in chosen]
            try:
                version = self.manager.commit_epoch(self.session, epoch_of(self.number), infos)
            except SstableRefused as error:
                lost = next(item for item in chosen if item[0] == error.name)
                if self.clock.era == lost[1]:
                    raise Violation(f"{error} although its upload was registered") from error
                self.done["refused"] += 1
                chosen.remove(lost)
                self.staged.remove(lost)
                continue
            break
        self.registry.settle(info.name for info in infos)
        self.staged = [item for item in self.staged if item not in chosen]
        self.done["committed"] += len(infos)
        if len({info.name for info in version.sstables} & {info.name for info in infos}) < len(infos):
            self.done["compacted at once"] += 1


class Replacer:
    """Replaces files like a compactor: several runs become one; some attempts die, some report too late."""

    def __init__(self, stores, clock, seed):
        self.stores, self.rng, self.files = stores, random.Random(f"replacer {seed}"), Files(f"outputs {seed}")
        self.done = Counter()

    def step(self):
        position = load(self.stores.meta_store, self.stores.objects)
        runs = list(position.version.runs)
        taken = {info.id for run in runs[-self.rng.randrange(2, 9):] for info in run.sstables}
        if len(taken) < 3:
            return
        token = self.rng.randbytes(16).hex()
        key, row = f"{TASK}{token}", json.dumps({"token": token}).encode()
        self.stores.meta_store.transaction(MetaOperations(put={key: row}))
        name = token[:16] + self.rng.randbytes(8).hex()
        self.stores.put(name)
        fate = self.rng.random()
        if fate < .2:                   # task removed: the output is garbage, and a late report is refused
            self.stores.meta_store.transaction(MetaOperations(delete=(key,)))
        if fate > .1 and self.report(key, row, name, taken):
            self.done["replaced"] += 1
        else:
            self.done["died"] += 1

    def report(self, key, row, name, taken):
        while True:
            position = load(self.stores.meta_store, self.stores.objects)
            version = position.version
            info = self.files.make(1, b"", b"\xff", name=name, id=position.head.next_file_id)
            delta = VersionDelta(version.id + 1, version.max_committed_epoch, version.safe_epoch,
                                 (RunAddition(1, 0, (info,)),), tuple(sorted(taken)))
            operations = append(position, delta, info.id + 1, 9)[0]
            try:
                self.stores.meta_store.transaction(operations + MetaOperations(require={key: row}, delete=(key,)))
            except PreconditionFailed as error:
                if error.key == key:
                    return False
                continue
            return True


class InterleavedMetaStore(MetaStore):
    """Wraps `store`; before some calls it waits for a step of another party of the race."""

    def __init__(self, store, rng, stepped, stop):
        self.store, self.rng, self.stepped, self.stop = store, rng, stepped, stop

    url = property(lambda self: self.store.url)

    def interleave(self):
        if self.rng.random() < .15 and not self.stop.is_set():
            self.stepped.clear()
            self.stepped.wait(.1)

    def get(self, key):
        self.interleave()
        return self.store.get(key)

    def list(self, prefix):
        self.interleave()
        return self.store.list(prefix)

    def transaction(self, operations):
        self.interleave()
        self.store.transaction(operations)


class Cleaner:
    """Vacuums of two processes: a long-lived one, and a new one each time."""

    def __init__(self, stores, clock, seed, *events):
        self.stores, self.clock, self.rng, self.done = stores, clock, random.Random(f"cleaner {seed}"), Counter()
        self.meta_store = InterleavedMetaStore(stores.meta_store, self.rng, *events) if events else stores.meta_store
        self.long_lived = self.begin()

    def begin(self):
        options = VacuumOptions(grace_ms=0, tombstone_ms=0, page_files=self.rng.choice([3, 10, 100]))
        return Vacuum(self.meta_store, self.stores.objects, self.clock, options=options)

    def step(self):
        vacuum = self.begin() if self.rng.random() < .3 else self.long_lived
        report = vacuum.remove_obsolete() if self.rng.random() < .3 else vacuum.run()
        self.done.update({need.value: footprint.files for need, footprint in report.found.items()})
        self.done["runs"] += 1


class Race:
    """At least `epochs` of the writer, `reads` in this process and `fresh_reads` in each of `fresh` other processes.

    The writer continues until vacuums have met every kind of garbage, which depends on the interleaving, at most
    `EPOCHS_LIMIT` times as long.
    """

    def __init__(self, directory, seed, epochs, reads, fresh, fresh_reads):
        self.directory, self.seed, self.epochs = directory, seed, epochs
        self.reads, self.fresh, self.fresh_reads = reads, fresh, fresh_reads
        directory.mkdir(parents=True, exist_ok=True)
        # Ahead of file times, so that no object is ever young.
        self.clock = SharedClock(directory / "clock", int(time.time() * 1000) + 30 * 86_400_000)
        self.stores, self.done = Stores(directory), Counter()
        self.failed, self.stop, self.written = [], threading.Event(), threading.Event()

    def run(self):
        """Runs the race; counts of events by name. Errors: `Violation`."""
        self.writer, self.replacer = Writer(self.stores, self.clock, self.seed), Replacer(
            self.stores, self.clock, self.seed)
        stepped, cleaned = threading.Event(), threading.Event()
        self.cleaners = [Cleaner(self.stores, self.clock, f"{self.seed} {number}", stepped, self.stop)
                         for number in range(2)]
        readers = [Reader(self.stores, self.clock, random.Random(f"{self.seed} {number}"), f"reader-{number}", cleaned)
                   for number in range(2)]
        self.writer.commit([])
        endless = [self.thread(lambda cleaner=cleaner: (cleaner.step(), cleaned.set())) for cleaner in self.cleaners]
        endless += [self.thread(lambda: (self.replacer.step(), stepped.set())),
                    self.thread(lambda: self.write(stepped), once=True)]
        bounded = [self.thread(self.spawn, once=True),
                   *(self.thread(lambda reader=reader: self.read(reader), once=True) for reader in readers)]
        for thread in bounded:
            thread.join()
        self.written.wait()
        self.stop.set()
        for thread in endless:
            thread.join()
        if self.failed:
            raise self.failed[0]
        for name, party in (("writer", self.writer), ("replacer", self.replacer)):
            self.done.update({f"{name}: {word}": count for word, count in party.done.items()})
        for party in (*self.cleaners, *readers):
            self.done.update(party.done)
        self.check_garbage(readers)
        return self.done

    def thread(self, step, once=False):
        def work():
            try:
                step()
                while not once and not self.stop.is_set():
                    step()
            except BaseException as error:      # the race ends and run() raises it
                self.failed.append(error)
                self.stop.set()
                self.written.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def write(self, stepped):
        rng = random.Random(f"clock {self.seed}")
        while not self.stop.is_set():
            self.writer.step()
            stepped.set()
            if self.writer.number >= self.epochs and self.has_met_all():
                self.written.set()
            chance = rng.random()       # jumps are longer forward than back, or no lease would ever expire
            self.clock.move(1 if chance > .07 else rng.randrange(LEASE_MS // 10) if chance > .04
                            else -rng.randrange(3_600_000) if chance > .02 else rng.randrange(LEASE_MS, 8_000_000))

    def has_met_all(self):
        met = [sum(cleaner.done[need.value] for cleaner in self.cleaners) for need in (Need.STALE, Need.ORPHANED)]
        is_enough = min(*met, self.replacer.done["replaced"]) > 5
        return is_enough or self.writer.number >= self.epochs * EPOCHS_LIMIT

    def read(self, reader):
        while reader.done["reads"] < self.reads and not self.stop.is_set():
            reader.step()

    def spawn(self):
        for number in range(self.fresh):
            if self.stop.is_set():
                return
            ended = subprocess.run(
                [sys.executable, "-m", "tests.simulation.vacuum_race", str(self.directory),
                 f"{self.seed} fresh {number}", str(self.fresh_reads)],
                cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
            if ended.returncode:
                raise Violation(f"a fresh process: {ended.stderr[-2_000:]}")
            self.done.update({f"fresh: {word}": count for word, count in json.loads(ended.stdout).items()})

    def check_garbage(self, readers):
        """Without readers, writers and compactors, one vacuum leaves exactly the files of the version."""
        for reader in readers:
            reader.close()
        self.writer.registry.release()
        meta_store = self.stores.meta_store
        meta_store.transaction(MetaOperations(delete=tuple(key for key, _ in meta_store.list(TASK))))
        self.clock.move(30 * 86_400_000)        # more than any jump back
        vacuum = Cleaner(self.stores, self.clock, self.seed).long_lived
        self.done["stale"] += vacuum.run().found[Need.STALE].files
        version = load(meta_store, self.stores.objects).version
        wanted = sorted(path for info in version.sstables
                        for path in (sstable_data_path(info.name), sstable_meta_path(info.name)))
        stored = [found.path for found in self.stores.objects.list("")]
        if stored != wanted:
            raise Violation(f"garbage {sorted(set(stored) - set(wanted))}, missing {sorted(set(wanted) - set(stored))}")
        self.stores.manager(self.clock, random.Random(self.seed)).claim_writer()
        vacuum.run()
        rows = [key for prefix in (OBSOLETE, UPLOADS, VACUUMED, TASK) for key, _ in meta_store.list(prefix)]
        if rows:
            raise Violation(f"obsolete rows: {rows[:10]} of {len(rows)}")


def main(directory, seed, reads):
    """A fresh process: makes `reads` pinned reads, then prints its counts as JSON."""
    directory = Path(directory)
    clock = SharedClock(directory / "clock")
    rng = random.Random(seed)
    reader = Reader(Stores(directory), clock, rng, f"fresh-{rng.randbytes(4).hex()}")
    while reader.done["reads"] < int(reads):
        reader.step()
    if rng.random() < .5:               # half of them die with their pins
        reader.close()
    print(json.dumps(reader.done))


if __name__ == "__main__":
    main(*sys.argv[1:])
