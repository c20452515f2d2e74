"""A process that works on a store up to a named point, where it exits at once, as by `kill -9`.

`main` runs in a process of its own (`tests/support/drivers/spawned.py`). `point` is a step of CHECKPOINT.md (`inject`,
`collect`, `sync`, `commit`, `committed`, `notify`), or a call of a store, before or after its effect (`put:before`,
`put:after`, `transaction:before`, `transaction:after`), or `none`. The process exits when it reaches the point for the
`nth` time. It sends each acknowledged round before the next one begins."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from hummock.meta import open_meta_store
from hummock.meta.store.base import MetaStore
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation import session_workload

NEVER_MS = 3_600_000
KILLED = 137


class Killer:
    """Exits the process the n-th time its point is reached; armed once the session is open."""

    def __init__(self, point: str, nth: int) -> None:
        self.point, self.left, self.is_armed = point, nth, False

    def reach(self, point: str) -> None:
        if self.is_armed and point == self.point:
            self.left -= 1
            if self.left == 0:
                os._exit(KILLED)

    def around(self, name: str, call):
        self.reach(f"{name}:before")
        result = call()
        self.reach(f"{name}:after")
        return result


class KilledObjectStore(ObjectStore):
    def __init__(self, store: ObjectStore, killer: Killer) -> None:
        self._store, self._killer = store, killer

    @property
    def url(self):
        return self._store.url

    def put(self, path, data, *, if_absent=False):
        self._killer.around("put", lambda: self._store.put(path, data, if_absent=if_absent))

    def get(self, path, byte_range=None):
        return self._store.get(path, byte_range)

    def head(self, path):
        return self._store.head(path)

    def list(self, prefix="", *, after=""):
        return self._store.list(prefix, after=after)

    def delete(self, paths):
        self._store.delete(paths)

    def close(self):
        self._store.close()


class KilledMetaStore(MetaStore):
    def __init__(self, store: MetaStore, killer: Killer) -> None:
        self._store, self._killer = store, killer

    @property
    def url(self):
        return self._store.url

    def get(self, key):
        return self._store.get(key)

    def list(self, prefix):
        return self._store.list(prefix)

    def transaction(self, operations):
        self._killer.around("transaction", lambda: self._store.transaction(operations))

    def close(self):
        self._store.close()


def storage_of(point: str) -> StorageOptions:
    """Commits are inline, unless the process is to die while it puts an object."""
    return StorageOptions(inline_bytes=0) if point.startswith("put:") else StorageOptions()


def main(url: str, seed: int, count: int, point: str, nth: int, link: Connection) -> None:
    killer = Killer(point, nth)
    playground = Playground(
        KilledObjectStore(open_object_store(url), killer),
        KilledMetaStore(open_meta_store(url), killer),
        PlaygroundOptions(stream=StreamOptions(barrier_interval_ms=NEVER_MS), storage=storage_of(point)),
        observer=lambda step, epoch: killer.reach(step.value),
    )
    with Session(playground) as session:
        made = session_workload.rounds(seed, count)
        session.wait_created()
        is_new = not session.names()
        killer.is_armed = True
        if is_new:
            session_workload.create(session, seed)
        done = session_workload.committed_round(session, made) if not is_new else 0
        link.send(f"round {done}")
        for number in range(done + 1, len(made)):
            for statement in made[number].statements:
                session.sql(statement)
            session.flush()
            link.send(f"round {number}")
        killer.is_armed = False
