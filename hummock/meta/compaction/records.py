"""Rows of compact tasks: the counter that every change of a task increments, running tasks, and results of ended ones.

    hummock/tasks          {next_id, changes}
    hummock/task/<id>      a task, the token of its current attempt, its holder, its lease and its progress
    hummock/wanted/<id>    a key range to be compacted; numbered by the same counter
    hummock/report/<id>    the result of a task
    hummock/large          until when a compactor on Spark runs the large tasks
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from hummock.base.json_fields import MALFORMED, check_format, natural, word
from hummock.base.key import KeyRange
from hummock.compaction.task import CompactTask
from hummock.errors import InvalidTask, MetaStoreCorrupt
from hummock.meta.records import (
    FORMAT,
    LARGE,
    REPORTS,
    TASK,
    TASKS,
    WANTED,
    LargeClaim,
    TaskAnswer,
    TaskCounter,
    decode,
    encode,
)
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.object_store.base import NAME_PREFIX_DIGITS, name_prefix


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A running task. `holder` holds it until `expires_ms`; names of its outputs begin with the token's digits.

    After a failed attempt it has no holder, and `expires_ms` is the time of the next try.
    """

    task: CompactTask
    token: str
    holder: str
    expires_ms: int
    progress_rows: int
    progressed_ms: int          # time of the last progress
    tries: int = 1
    error: str = ""             # of the latest failed attempt
    is_journaled: bool = False  # a report may include results of earlier attempts
    earlier: tuple[str, ...] = ()   # ... whose name prefixes are these

    @property
    def name_prefixes(self) -> frozenset[str]:
        """The possible name prefixes of the outputs in a report."""
        return frozenset((name_prefix(self.token), *self.earlier))

    def passed_on(self, token: str, **changed: Any) -> RunningTask:
        """The row of the next attempt."""
        earlier = (*self.earlier, name_prefix(self.token)) if self.is_journaled else ()
        return replace(self, token=token, earlier=earlier, **changed)

    def is_free(self, now_ms: int, stall_ms: int) -> bool:
        """Whether it may be reassigned: its lease expired, it made no progress, or its next try is due."""
        return now_ms >= self.expires_ms or (bool(self.holder) and now_ms >= self.progressed_ms + stall_ms)

    def encode(self) -> bytes:
        return _dump({"task": self.task.to_json(), "token": self.token, "holder": self.holder,
                      "expires_ms": self.expires_ms, "progress_rows": self.progress_rows,
                      "progressed_ms": self.progressed_ms, "tries": self.tries, "error": self.error,
                      "is_journaled": self.is_journaled, "earlier": list(self.earlier)})

    @classmethod
    def decode(cls, key: str, data: bytes) -> RunningTask:
        """The row under `key`. Raises `MetaStoreCorrupt`."""
        try:
            record = _load(data)
            token = str(record["token"])
            if len(token) < NAME_PREFIX_DIGITS:
                raise ValueError(f"{token!r} is no token")
            return cls(CompactTask.from_json(record["task"]), token, str(record["holder"]),
                       natural(record["expires_ms"]), natural(record["progress_rows"]),
                       natural(record["progressed_ms"]), natural(record["tries"]), str(record["error"]),
                       bool(record.get("is_journaled")), tuple(map(word, record.get("earlier", ()))))
        except (*MALFORMED, InvalidTask) as error:
            raise MetaStoreCorrupt(key, "fields", cls.__name__, str(error)) from error


@dataclass(frozen=True, slots=True)
class WantedRange:
    """Request `id`: files that may hold keys of `key_range`, if they existed when it was made."""

    id: int
    key_range: KeyRange

    def encode(self) -> bytes:
        end = self.key_range.end
        return _dump({"start": self.key_range.start.hex(), "end": None if end is None else end.hex()})

    @classmethod
    def decode(cls, key: str, data: bytes) -> WantedRange:
        """The row under `key`. Raises `MetaStoreCorrupt`."""
        try:
            record = _load(data)
            end = record["end"]
            return cls(int(key.removeprefix(WANTED)), KeyRange(bytes.fromhex(record["start"]),
                                                               None if end is None else bytes.fromhex(end)))
        except MALFORMED as error:
            raise MetaStoreCorrupt(key, "fields", cls.__name__, str(error)) from error


@dataclass(frozen=True, slots=True)
class TaskBoard:
    """All rows of tasks, consistent while the counter is `counter_bytes`; a change that requires it is serialised with
    all others.
    """

    counter_bytes: bytes | None
    counter: TaskCounter
    running: tuple[RunningTask, ...]        # ascending by id
    wanted: tuple[WantedRange, ...]

    def step(self, taken: int = 0) -> MetaOperations:
        """What every change of tasks requires and writes; `taken`: how many new numbers it uses."""
        counter = TaskCounter(self.counter.next_id + taken, self.counter.changes + 1)
        return MetaOperations(require={TASKS: self.counter_bytes}, put={TASKS: encode(counter)})

    def find(self, task_id: int) -> RunningTask | None:
        return next((row for row in self.running if row.task.id == task_id), None)


def read_board(meta_store: MetaStore) -> TaskBoard:
    """Reads the rows. If tasks change meanwhile, the rows are inconsistent and the counter, which is read first, is
    outdated: a transaction that requires it will fail.
    """
    counter_bytes = meta_store.get(TASKS)
    counter = TaskCounter() if counter_bytes is None else decode(TaskCounter, TASKS, counter_bytes)
    return TaskBoard(counter_bytes, counter, tuple(read_running(meta_store)),
                     tuple(WantedRange.decode(key, row) for key, row in meta_store.list(WANTED)))


def read_running(meta_store: MetaStore) -> list[RunningTask]:
    return [RunningTask.decode(key, row) for key, row in meta_store.list(TASK)]


def read_answer(meta_store: MetaStore, task_id: int) -> TaskAnswer | None:
    row = meta_store.get(report_key(task_id))
    return None if row is None else decode(TaskAnswer, report_key(task_id), row)


def remember(meta_store: MetaStore, answer: TaskAnswer, kept: int) -> MetaOperations:
    """Ends a task: replaces its row by its answer, and keeps the newest `kept` of the older answers."""
    ended = MetaOperations(put={report_key(answer.task_id): encode(answer)}, delete=(task_key(answer.task_id),))
    keys = [key for key, _ in meta_store.list(REPORTS) if key != report_key(answer.task_id)]
    return ended + (MetaOperations(delete=tuple(keys[:-kept])) if len(keys) > kept else NONE)


def large_until_ms(meta_store: MetaStore) -> int:
    """Until when large tasks are reserved for a compactor on Spark; 0: there never was one."""
    row = meta_store.get(LARGE)
    return 0 if row is None else decode(LargeClaim, LARGE, row).expires_ms


def claim_large(expires_ms: int) -> MetaOperations:
    return MetaOperations(put={LARGE: encode(LargeClaim(expires_ms))})


def task_key(task_id: int) -> str:
    return f"{TASK}{task_id:020d}"


def report_key(task_id: int) -> str:
    return f"{REPORTS}{task_id:020d}"


def wanted_key(request_id: int) -> str:
    return f"{WANTED}{request_id:020d}"


def _dump(record: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **record}, separators=(",", ":"), sort_keys=True).encode()


def _load(data: bytes) -> dict[str, Any]:
    record = json.loads(data)
    check_format("a row of compaction", record["format"], FORMAT)
    return record
