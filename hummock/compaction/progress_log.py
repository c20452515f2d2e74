"""TaskProgressLog: the finished subcompactions of a large task, so that a later driver does not repeat them.

    compact/<task id>-<digest of the task>/plan      the boundaries of the task, by the first driver
    compact/<task id>-<digest of the task>/<index>   the result of a range, by the first attempt that finished it

They are objects, since Spark tasks, which write them, have no access to the meta store; each is written once, by the
first writer. Any of several results of a range is valid: its inputs cannot change, and all files of attempts at the
task are protected until it ends. A damaged object is ignored. Vacuum deletes the logs of ended tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from hummock.compaction.subcompaction_planner import Split
from hummock.compaction.task import CompactTask, RangeResult
from hummock.errors import Corruption, InvalidTask, ObjectExists, ObjectNotFound
from hummock.object_store.base import ObjectStore

LOG_PREFIX = "compact/"
ID_DIGITS = 20
DIGEST_BYTES = 16


class TaskProgressLog:
    """The log of one task, given without its cuts."""

    def __init__(self, store: ObjectStore, task: CompactTask):
        digest = blake2b(json.dumps(task.to_json(), sort_keys=True).encode(), digest_size=8).hexdigest()
        self._store, self._root = store, f"{LOG_PREFIX}{task.id:0{ID_DIGITS}d}-{digest}/"

    def split(self, plan: Callable[[], Split]) -> Split:
        """The boundaries of the task: those recorded already, else those of `plan`, which are recorded.

        Raises `Corruption` where the record is damaged: results beside it are of unknown ranges.
        """
        path = f"{self._root}plan"
        if (held := _read(self._store, path)) is None:
            planned = plan()
            record = [[cut.hex() for cut in planned.cuts], list(planned.sizes)]
            with suppress(ObjectExists):
                self._store.put(path, _sealed(record), if_absent=True)
                return planned
            if (held := _read(self._store, path)) is None:
                raise Corruption(path, "its seal")
        cuts, sizes = held
        return Split(tuple(map(bytes.fromhex, cuts)), tuple(sizes))

    def path(self, index: int) -> str:
        """Path of a range's result."""
        return f"{self._root}{index:06d}"

    def results(self, count: int) -> dict[int, RangeResult]:
        """Results of the finished ones of the first `count` ranges, by index."""
        paths = {self.path(index): index for index in range(count)}
        done: dict[int, RangeResult] = {}
        for found in self._store.list(self._root):
            record = _read(self._store, found.path) if found.path in paths else None
            if record is not None:
                with suppress(InvalidTask):
                    done[paths[found.path]] = RangeResult.from_json(record)
        return done

    def clear(self) -> None:
        """Deletes the log of an ended task."""
        self._store.delete([found.path for found in self._store.list(self._root)])


def write_result(store: ObjectStore, path: str, result: RangeResult) -> None:
    """Records the result of a range, unless there is one already."""
    with suppress(ObjectExists):
        store.put(path, _sealed(result.to_json()), if_absent=True)


def task_id_of(path: str) -> int | None:
    """The task whose log an object is part of; None: of none."""
    digits = path.removeprefix(LOG_PREFIX)[:ID_DIGITS]
    return int(digits) if path.startswith(LOG_PREFIX) and len(digits) == ID_DIGITS and digits.isdigit() else None


def _sealed(record: object) -> bytes:
    payload = json.dumps(record).encode()
    return blake2b(payload, digest_size=DIGEST_BYTES).hexdigest().encode() + payload


def _read(store: ObjectStore, path: str) -> Any:
    """The record; None if there is none or it is damaged."""
    try:
        data = store.get(path)
    except ObjectNotFound:
        return None
    seal, payload = data[:2 * DIGEST_BYTES], data[2 * DIGEST_BYTES:]
    whole = blake2b(payload, digest_size=DIGEST_BYTES).hexdigest().encode() == seal
    return json.loads(payload) if whole else None
