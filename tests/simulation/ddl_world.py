"""A store whose process crashes at one of its calls, simulated within the test: later calls have no effect.

While armed, calls that change something are counted: transactions of the meta store and puts of objects; only puts if
the meta store is a log in the object store. Another playground opens the remaining store and finds either all of a DDL
or nothing of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import unquote

from hummock.meta.store.base import MetaOperations, MetaStore
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.store.object_log import ObjectLogMetaStore
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store.base import ObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, MetaOptions, VacuumOptions
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session

NEVER_MS = 3_600_000
SOON_SECONDS = 10.0
LEASES_END_MS = 2 * MetaOptions().lease_ms
SHAPE = CompactionOptions(history_ms=0, l0_runs=2, l0_base_bytes=1)


Ddl: TypeAlias = "str | Callable[[Session], object]"


class ProcessDied(Exception):
    """The simulated process is dead; raised by every later call of a store."""


class How(StrEnum):
    """When the process dies at a call: before its effect, in the middle (puts only), or after its effect."""

    BEFORE = "before"
    TORN = "torn"
    AFTER = "after"


@dataclass(slots=True)
class CrashPoint:
    """The process dies at call number `at` (from 1; 0: never); calls are counted while `is_armed`."""

    at: int = 0
    how: How = How.BEFORE
    is_armed: bool = False
    calls: int = 0
    is_dead: bool = False

    def check(self) -> None:
        if self.is_dead:
            raise ProcessDied

    def around(self, call: Any, tear: Any) -> Any:
        self.check()
        if not self.is_armed:
            return call()
        self.calls += 1
        if self.calls != self.at:
            return call()
        self.is_dead = True
        if self.how is How.TORN:
            tear()
        elif self.how is How.AFTER:
            call()
        raise ProcessDied


class CrashingObjectStore(ObjectStore):
    def __init__(self, store: ObjectStore, crash: CrashPoint) -> None:
        self._store, self._crash = store, crash

    @property
    def url(self):
        return self._store.url

    def put(self, path, data, *, if_absent=False):
        data = bytes(data)

        def tear() -> None:
            """Writes half a file; records of the log and its guard are written atomically, as their store guarantees.
            """
            if not path.startswith(("meta/", "store/")):
                self._store.put(path, data[: len(data) // 2])

        self._crash.around(lambda: self._store.put(path, data, if_absent=if_absent), tear)

    def get(self, path, byte_range=None):
        self._crash.check()
        return self._store.get(path, byte_range)

    def head(self, path):
        self._crash.check()
        return self._store.head(path)

    def list(self, prefix="", *, after=""):
        self._crash.check()
        return self._store.list(prefix, after=after)

    def delete(self, paths):
        self._crash.check()
        self._store.delete(paths)


class CrashingMetaStore(MetaStore):
    def __init__(self, store: MetaStore, crash: CrashPoint, world: World) -> None:
        self._store, self._crash, self._world = store, crash, world

    @property
    def url(self):
        return self._store.url

    def get(self, key):
        self._crash.check()
        return self._store.get(key)

    def list(self, prefix):
        self._crash.check()
        return self._store.list(prefix)

    def transaction(self, operations):
        if self._world.is_log:
            self._crash.check()
            self._store.transaction(operations)
        else:
            self._crash.around(lambda: self._store.transaction(operations), lambda: None)

    def now_ms(self):
        return self._world.now_ms


class World:
    """The two stores, and one process at a time on them. `is_log`: metadata is a log in the object store."""

    def __init__(self, is_log: bool = False) -> None:
        self.is_log = is_log
        self.stream_options: dict[str, Any] = {}
        self.objects, self.rows = MemoryObjectStore(lambda: self.now_ms), MemoryMetaStore()
        self.now_ms = 1_700_000_000_000

    @property
    def meta(self) -> MetaStore:
        """The meta store, as a process that does not crash sees it."""
        return ObjectLogMetaStore(self.objects) if self.is_log else self.rows

    @classmethod
    def after(cls, statements: Sequence[str]) -> World:
        """A world in which a process executed the statements and ended."""
        world = cls()
        with world.open() as session:
            for statement in statements:
                session.sql(statement)
        return world

    def meta_of(self, objects: ObjectStore, crash: CrashPoint) -> MetaStore:
        """The meta store, as a process with a crash point sees it."""
        return CrashingMetaStore(ObjectLogMetaStore(objects) if self.is_log else self.rows, crash, self)

    def copy(self) -> World:
        """An independent world with copies of the stores."""
        other = World(self.is_log)
        other.now_ms, other.stream_options = self.now_ms, self.stream_options
        for found in self.objects.list():
            other.objects.put(found.path, self.objects.get(found.path))
        other.rows.transaction(MetaOperations(put=dict(self.rows.list(""))))
        return other

    def open(self, crash: CrashPoint | None = None) -> Session:
        """A session of a process with a crash point."""
        crash = crash or CrashPoint()
        options = PlaygroundOptions(
            stream=StreamOptions(
                barrier_interval_ms=NEVER_MS, recovery_attempts=1, recovery_backoff_ms=1, **self.stream_options
            ),
            compaction=SHAPE,
            is_maintained=False,
        )
        objects = CrashingObjectStore(self.objects, crash)
        session = Session(Playground(objects, self.meta_of(objects, crash), options))
        session.wait_created()
        return session

    def run(self, statements: Sequence[Ddl], crash: CrashPoint) -> bool:
        """A process executes statements and ends; returns whether all were acknowledged before it died."""
        session, is_acknowledged = self.open(crash), False
        crash.is_armed = True
        with suppress(Exception):
            for statement in statements:
                execute(session, statement)
            is_acknowledged = True
        crash.is_armed = False
        crash.is_dead = True
        with suppress(Exception):
            session.abandon()
        return is_acknowledged

    def vacuum(self) -> None:
        """Expires the leases of dead processes and removes all garbage."""
        self.now_ms += LEASES_END_MS
        options = VacuumOptions(grace_ms=0, tombstone_ms=0)
        for _ in range(2):
            Vacuum(self.meta, self.objects, lambda: self.now_ms, options=options).run()
            self.now_ms += LEASES_END_MS

    def check_view(self, session: Session, query: str) -> None:
        """Checks that the view `mv` of `query` over table `t` has its rows and follows it, without any garbage."""

        def rows(query: str) -> list[str]:
            return sorted(map(repr, session.sql(query).to_arrow().to_pylist()))

        assert rows("SELECT * FROM mv") == rows(query)
        session.sql("UPDATE t SET v = v + 1 WHERE id < 40")
        session.sql("DELETE FROM t WHERE id > 70")
        session.flush()
        assert rows("SELECT * FROM mv") == rows(query)
        self.vacuum()
        self.check_files(session)

    def check_catalog_rows(self) -> None:
        """Checks that names and objects match one to one, and that every state table has its job."""
        rows = dict(self.meta.list("catalog/"))

        def read(prefix: str) -> dict[int, dict]:
            return {json.loads(row)["id"]: json.loads(row) for key, row in rows.items() if key.startswith(prefix)}

        tables, schemas = read("catalog/table/"), read("catalog/schema/")
        named = {number for number, table in tables.items() if table["kind"] != "internal"}
        names = {int(row): unquote(key.split("/")[-1]) for key, row in rows.items() if key.startswith("catalog/name/")}
        assert names == {number: tables[number]["name"] for number in named}
        above = {int(row) for key, row in rows.items() if key.startswith("catalog/schema_name/")}
        assert above == schemas.keys()
        assert {table["schema_id"] for table in tables.values()} <= {0, *schemas}
        for table in tables.values():
            assert set(table["dependencies"]) <= named
        jobs = {number for number, table in tables.items() if table["plan"] and table["kind"] not in ("view", "source")}
        assert {int(key[len("catalog/job/") :]) for key in rows if key.startswith("catalog/job/")} == jobs
        assert {int(key[len("catalog/creating/") :]) for key in rows if key.startswith("catalog/creating/")} <= jobs
        assert all(number < int(rows["catalog/next_id"]) for number in (*tables, *schemas))

    def check_files(self, session: Session) -> None:
        """Checks that files are those of the version, and have rows of known or dropped tables only. A file may be
        uploaded whose epoch is committed soon."""
        deadline = time.monotonic() + SOON_SECONDS
        while True:
            stored = {each.path.rsplit("/", 1)[-1].split(".")[0] for each in self.objects.list() if "sst/" in each.path}
            version = session._playground.manager.version
            needed = {info.name for info in version.stored_files}
            if stored == needed or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert stored == needed, f"left over: {stored - needed}, missing: {needed - stored}"
        known = set(session._playground.catalog.snapshot.tables)
        held = {table for info in version.sstables for table in info.table_ids}
        assert held <= known | set(version.dropped_tables), "rows of an unknown table"


def execute(session: Session, ddl: Ddl) -> None:
    """Executes a statement, or calls a function with the session."""
    if isinstance(ddl, str):
        session.sql(ddl)
    else:
        ddl(session)


def described(session: Session) -> dict[str, Any]:
    """Everything visible to a user: schemas, and for each relation its columns, definition and rows."""
    known = session._playground.catalog.snapshot
    seen: dict[str, Any] = {"schemas": sorted(each.name for each in known.schemas.values())}
    for name in session.names():
        table = session.sql(f"SELECT * FROM {name}").to_arrow()
        columns = [column.to_pylist() for column in table.columns]
        rows = sorted(zip(*columns, strict=True), key=repr) if columns else []
        described = session.sql(f"DESCRIBE {name}").to_pylist()
        seen[name] = (table.schema.names, rows, [(row["name"], row["type"], row["default"]) for row in described])
    return seen
