"""Shared by tests of the object log: a log over a store, with a clock that only the test moves."""

from hummock.meta.store.base import MetaOperations
from hummock.meta.store.object_log import ObjectLogMetaStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import MetaOptions
from tests.support.servers.object_store_faults import FaultPlan, FaultyObjectStore
from tests.support.worlds.manager_parts import StandingClock


class LogWorld:
    """Objects and log handles on one clock that only the test moves."""

    def __init__(self, objects=None, **options):
        self.clock = StandingClock()
        self.objects = objects or MemoryObjectStore(self.clock)
        self.plan = FaultPlan()
        self.options = MetaOptions(log_checkpoint_records=4, log_grace_ms=8_000, **options)

    def open(self, **arguments):
        faulty = FaultyObjectStore(self.objects, self.plan)
        return ObjectLogMetaStore(faulty, options=self.options, monotonic=lambda: self.clock() / 1000, **arguments)

    def paths(self, prefix="meta/"):
        return [found.path for found in self.objects.list(prefix)]

    def calls(self):
        calls, self.plan.calls[:] = list(self.plan.calls), []
        return calls


def count(store, times=1):
    """Increments the row `n` by read and conditional write."""
    for _ in range(times):
        value = store.get("n")
        store.transaction(MetaOperations(require={"n": value}, put={"n": b"%d" % (int(value or 0) + 1)}))


def copied(objects, prefix=""):
    return {found.path: objects.get(found.path) for found in objects.list(prefix)}


def restore(objects, copy, prefix="meta/"):
    objects.delete([found.path for found in objects.list(prefix)])
    for path, data in copy.items():
        objects.put(path, data)
