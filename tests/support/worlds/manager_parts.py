"""Parts for tests of the manager: a manual clock, and descriptions of files that do not exist."""

import random

from hummock.compaction.task import RangeResult
from hummock.meta.compaction.manager import _overtaken, raise_safe_epoch
from hummock.meta.compaction.records import TaskAnswer, read_board
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import CANCELLED, REPORTS, decode
from hummock.meta.version_state import retry_overtaken
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import MetaOptions
from hummock.sstable.info import SstableInfo


def epoch_of(number):
    """The pure epoch number `number`."""
    return number << 16


class StandingClock:
    """A clock in milliseconds that only `advance` moves."""

    def __init__(self, now_ms=1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms

    def advance(self, milliseconds):
        self.now_ms += milliseconds


class Files:
    """Makes descriptions of files with random names."""

    def __init__(self, seed=0):
        self._rng = random.Random(f"files {seed}")

    def make(self, number, first=b"a", last=b"z", **fields):
        known = {"name": self._rng.randbytes(16).hex(), "smallest": first, "largest": last, "rows": 10,
                 "data_bytes": 1000, "uncompressed_bytes": 1000, "table_ids": (1,),
                 "min_epoch": epoch_of(number), "max_epoch": epoch_of(number), "meta_bytes": 100,
                 "content_hash": self._rng.getrandbits(64)}
        return SstableInfo(**{**known, **fields})


def open_manager(meta_store, clock=None, seed=0, object_store=None, compaction=None, **options):
    rng = random.Random(f"manager {seed}")
    return HummockManager(meta_store, object_store or MemoryObjectStore(), clock or StandingClock(),
                          options=MetaOptions(**options), compaction=compaction, random_bytes=rng.randbytes)


def results_of(task, token, *, dropped=0, files=1, rng=None):
    """The result of one range as an attempt would report it: the task's rows except `dropped`, in `files` files."""
    rng = rng or random.Random(f"results {token}")
    inputs = [info for part in task.inputs for info in part.sstables]
    first, last = min(info.smallest for info in inputs), max(info.largest for info in inputs)
    bounds = [first, *(first + b"%03d" % index for index in range(1, 2 * files - 1)), last]
    kept = task.input_rows - dropped
    shares = [kept // files + (index < kept % files) for index in range(files)]
    outputs = tuple(
        SstableInfo(token[:16] + rng.randbytes(8).hex(), bounds[2 * index], bounds[2 * index + 1], rows,
                    max(1, task.input_bytes * rows // task.input_rows), 2000, inputs[0].table_ids,
                    min(info.min_epoch for info in inputs), max(info.max_epoch for info in inputs), meta_bytes=100,
                    content_hash=rng.getrandbits(64))
        for index, rows in enumerate(shares) if rows)
    held = task.input_hash or 0
    dropped_hash = (held - sum(info.content_hash for info in outputs)) % 2**64
    return [RangeResult(0, outputs, task.input_rows, dropped, held, dropped_hash, task.input_bytes)]


def names_of(version):
    return sorted(info.name for info in version.sstables)


def advance_safe_epoch(manager, epoch):
    """Raises the safe epoch towards `epoch`, as far as pins and commits allow, as a compaction does; the result."""
    manager._keeper.change(
        lambda position: raise_safe_epoch(position, epoch, manager._meta_store, manager._clock,
                                          manager.options.checkpoint_deltas), retry_overtaken)
    return manager.version.safe_epoch


def cancel_task(manager, task_id, reason="it was cancelled"):
    """Cancels a task, as the drop of one of its files does; whether it was running."""
    tasks, found = manager._compaction, []

    def plan(position):
        board = read_board(manager._meta_store)
        found[:] = [row for row in board.running if row.task.id == task_id]
        return (tasks._ended(found[0], CANCELLED, reason) + board.step(), position) if found else None

    manager._keeper.change(plan, _overtaken)
    return bool(found)


def task_answers(manager):
    """The results of the newest tasks, oldest first."""
    return [decode(TaskAnswer, key, row) for key, row in manager._meta_store.list(REPORTS)]
