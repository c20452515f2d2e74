"""One store that sessions of both engines open, one after the other, at a time that the test sets."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial

from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store import open_object_store
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from stream.spark.epoch_spec import EpochTask
from stream.spark.spark_worker import SparkWorker
from tests.simulation.graph_engines import LocalTasks
from tests.support.drivers.seeds import run_seed

NEVER_MS = 3_600_000


class EngineStore:
    """No barrier comes by itself: `now_ms` is the time of the next one."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self.objects, self.meta = open_object_store("memory://"), MemoryMetaStore()
        self.tasks: list[EpochTask] = []
        self.counts: Counter[str] = Counter()
        self.now_ms = 1_700_000_000_000

    def open(self, *, slots: int = 0, threads: int = 1, processes: int = 1, **options: object) -> Session:
        """A session; with `slots` its epochs are tasks, none of them in the process of the driver."""
        stream = StreamOptions(barrier_interval_ms=NEVER_MS, **{"driver_rows": 0, "task_rows": 1, **options})
        engine = None
        if slots:
            tasks = LocalTasks(self.objects, run_seed(), slots, self.counts, threads, processes)
            answer = tasks._answer
            tasks._answer = lambda task: (self.tasks.append(task), answer(task))[1]
            engine = partial(SparkWorker, tasks=tasks)
        objects, meta = _Unclosed(self.objects), _Unclosed(self.meta)
        whole = PlaygroundOptions(stream, is_maintained=False)
        session = Session(Playground(objects, meta, whole, clock=lambda: self.now_ms, engine=engine))
        self._undo.callback(session.abandon)
        return session


class _Unclosed:
    """What the next session opens too."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def close(self) -> None: ...
