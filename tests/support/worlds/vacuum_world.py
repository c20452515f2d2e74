"""A store with dummy files, for tests of vacuum: commits, uploads, compactions and pins."""

import json
import random

from hummock.errors import PreconditionFailed
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import TASK
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.upload_registry import PREFIX_SECONDS, UploadRegistry
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.meta.version_log import append, load
from hummock.object_store.base import SSTABLE_PREFIX, sstable_data_path, sstable_meta_path, sstable_name_of
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import MetaOptions, VacuumOptions
from hummock.version import RunAddition, VersionDelta
from tests.support.worlds.manager_parts import Files, StandingClock, epoch_of

LEASE_MS = 30_000
FILE_BYTES = 100        # both objects together


class VacuumWorld:
    """One writer process, over stores that a test may replace by faulty ones."""

    def __init__(self, meta_store=None, objects=None, clock=None, seed=0):
        self.clock = clock or StandingClock()
        self.meta_store = meta_store or MemoryMetaStore()
        self.objects = objects or MemoryObjectStore(self.clock)
        self.rng, self.files = random.Random(seed), Files(seed)
        self.manager = self.process()
        self.session = self.manager.claim_writer()
        self.seconds = 0.0
        self.registry = UploadRegistry(self.manager, "writer", self.rng.randbytes, lambda: self.seconds)
        self.number = 0

    def process(self):
        """A manager as another process would open it."""
        return HummockManager(self.meta_store, self.objects, self.clock, options=MetaOptions(lease_ms=LEASE_MS),
                              random_bytes=self.rng.randbytes)

    def vacuum(self, meta_store=None, objects=None, **options):
        known = {"grace_ms": 0, "tombstone_ms": 0, **options}
        return Vacuum(meta_store or self.meta_store, objects or self.objects, self.clock,
                      options=VacuumOptions(**known))

    def put(self, name):
        self.objects.put(sstable_data_path(name), b"d" * 60, if_absent=True)
        self.objects.put(sstable_meta_path(name), b"m" * 40, if_absent=True)
        return name

    def upload(self, first=b"a", last=b"z", name=None):
        """Uploads a file that is in no version yet."""
        return self.files.make(self.number + 1, first, last, name=self.put(name or self.registry.mint()),
                               data_bytes=60, meta_bytes=40)

    def begin_prefix(self):
        """Starts a new name prefix; the row of the old one is deleted once its files are settled."""
        self.seconds += PREFIX_SECONDS
        self.registry.settle([self.registry.mint()])

    def commit(self, *infos):
        self.number += 1
        version = self.manager.commit_epoch(self.session, epoch_of(self.number), infos)
        self.registry.settle(info.name for info in infos)
        return version

    def commit_new(self, count=1):
        """Commits `count` new disjoint files."""
        bounds = [b"%03d" % index for index in range(count)]
        return self.commit(*(self.upload(bound, bound + b"x") for bound in bounds))

    def replace(self, before_report=lambda: None):
        """Compacts all files into one: task row, upload under its token, report. False if the task was taken over."""
        token = self.rng.randbytes(16).hex()
        key = f"{TASK}{self.rng.getrandbits(40)}"
        row = json.dumps({"token": token}).encode()
        self.meta_store.transaction(MetaOperations(put={key: row}))
        info = self.upload(name=token[:16] + self.rng.randbytes(8).hex())
        before_report()
        position = load(self.meta_store, self.objects)
        version = position.version
        info = self.files.make(self.number or 1, b"", b"\xff", name=info.name, data_bytes=60, meta_bytes=40,
                               id=position.head.next_file_id)
        delta = VersionDelta(version.id + 1, version.max_committed_epoch, version.safe_epoch,
                             (RunAddition(1, 0, (info,)),), tuple(held.id for held in version.sstables))
        done = append(position, delta, info.id + 1, 8)[0] + MetaOperations(require={key: row}, delete=(key,))
        try:
            self.meta_store.transaction(done)
        except PreconditionFailed:
            self.meta_store.transaction(MetaOperations(delete=(key,)))
            return False
        self.manager.refresh()
        return True

    @property
    def stored(self):
        """Names of files whose objects are all stored."""
        paths = {found.path for found in self.objects.list(SSTABLE_PREFIX)}
        return {name for path in paths if (name := sstable_name_of(path))
                if sstable_data_path(name) in paths and sstable_meta_path(name) in paths}

    @property
    def paths(self):
        return [found.path for found in self.objects.list("")]


def names(version):
    return {info.name for info in version.sstables}
