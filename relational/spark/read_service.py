"""ReadService: plans the reads of the data source in the driver's Python process, and holds their files.

Spark plans a Python data source in short-lived processes of its own: they end a minute after their last use, and do not
know when a read has ended. So they ask this service over a local socket, whose address travels with the registered
class. It keeps stores open, with one lease per store that a thread renews, shares pins between reads, and releases them
when their queries have ended. If the driver dies, what it held is kept for one more lease.

A message is JSON, {"call": "schema" | "specs", "options", "columns"}; the answer is JSON too, {"error"} or {"schema"}
or {"specs": their number}, and then each spec.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

from hummock.epoch import monotonic_seconds, wall_clock_ms
from hummock.errors import MetaStoreEmptied, MetaStoreReplaced, StoreClosed
from hummock.spark.jobs import slots
from relational.errors import ReadRefused
from relational.spark.held_reads import HeldReads, Query
from relational.spark.open_store import OpenStore
from relational.spark.query_activity import QueryActivity
from relational.spark.read_options import ReadOptions
from relational.spark.read_plan import planned_specs, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REVIEW_SECONDS = 5
UNKNOWN_HELD_MS = 3_600_000     # of a read, where it is not known which queries run
OPEN_SECONDS = 120              # a store that no read uses stays open for that long
REFUSED_SECONDS = 0.01
SOCKET_PATH_BYTES = 80          # the system's limit is about 100, of which a part is for the names of ours
SOURCE = "hummock"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service of this machine listens; only its user may connect."""

    path: str
    key: bytes

    def schema(self, options: ReadOptions) -> str:
        """The schema of the frame, as JSON. Raises ReadRefused, and OSError if the service has ended."""
        with self._connected() as connection:
            return str(_asked(connection, "schema", options)["schema"])

    def specs(self, options: ReadOptions, columns: list[str]) -> list[bytes]:
        """The specs of the tasks of a read. Raises as `schema` does."""
        with self._connected() as connection:
            count = _asked(connection, "specs", options, columns)["specs"]
            return [connection.recv_bytes() for _ in range(count)]

    def _connected(self) -> Connection[Any, Any]:
        return Client(self.path, "AF_UNIX", self.key)


class ReadService:
    """The service of one application. Thread safe. `close` releases all that it holds."""

    def __init__(self, activity: QueryActivity, slots: int, *, now_ms: Callable[[], int] = wall_clock_ms):
        self._activity, self._slots = activity, slots
        self._reviewing = threading.Lock()      # guards the activity
        self._lock = threading.Lock()           # guards what follows
        self._stores: dict[tuple[str, str | None], OpenStore] = {}
        self._used: dict[tuple[str, str | None], float] = {}
        self._held = HeldReads(now_ms)
        long = len(tempfile.gettempdir()) > SOCKET_PATH_BYTES
        self._directory = tempfile.mkdtemp(prefix="hummock-", dir="/tmp" if long else None)
        self.address = ServiceAddress(f"{self._directory}/reads", os.urandom(16))
        self._listener = Listener(self.address.path, "AF_UNIX", authkey=self.address.key)
        self._closed = threading.Event()
        for work in (self._serve, self._watch):
            threading.Thread(target=work, daemon=True, name=f"hummock-reads-{work.__name__}").start()

    def close(self) -> None:
        """Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        with self._lock:
            self._held.close()
            for store in self._stores.values():
                store.close()
            self._stores.clear()

    @property
    def held(self) -> int:
        """Number of reads whose files are kept."""
        return len(self._held)

    def review(self) -> None:
        """Releases what no query needs any more, and closes stores that are not used. Called every few seconds."""
        with self._reviewing:
            queries = self._queries() if self._held else []
        with self._lock:
            if queries is None:
                self._held.expire(UNKNOWN_HELD_MS)
            else:
                self._held.review(queries)
            if not self._held:
                for key in [key for key, used in self._used.items() if monotonic_seconds() - used > OPEN_SECONDS]:
                    del self._used[key]
                    self._stores.pop(key).close()

    def _queries(self) -> list[Query] | None:
        """What runs, and what ended since the last call; None: it is not known."""
        try:
            return self._activity.poll()
        except Exception:       # py4j raises errors of its own, and those of Java
            return None

    # -- calls ---------------------------------------------------------------------------------------------

    def schema(self, options: ReadOptions) -> str:
        """The schema of the frame, as JSON."""
        with closing(self._pinned(options)) as table:
            return schema_of(table, options).json()

    def specs(self, options: ReadOptions, columns: list[str]) -> tuple[bytes, ...]:
        """The specs of the tasks of a read, whose files are kept from now on."""
        table = self._pinned(options)
        try:
            specs = planned_specs(table, options, columns, self._slots)
        except BaseException:
            table.close()
            raise
        with self._lock:
            self._held.add(table, options.held_ms or 0)
        return specs

    def _pinned(self, options: ReadOptions) -> Any:
        """The table, pinned in its store, which is opened again if it was replaced meanwhile."""
        key = (options.url, options.meta)
        store, is_fresh = self._store(key)
        try:
            return options.table(store=store)
        except (MetaStoreEmptied, MetaStoreReplaced, StoreClosed):
            if is_fresh:
                raise
        with self._lock:
            if self._stores.get(key) is store:
                del self._stores[key]
                store.close()
        return options.table(store=self._store(key)[0])

    def _store(self, key: tuple[str, str | None]) -> tuple[OpenStore, bool]:
        """The store, and whether it was opened by this call."""
        with self._lock:
            if self._closed.is_set():
                raise StoreClosed("the service of reads")
            self._used[key] = monotonic_seconds()
            is_fresh = key not in self._stores
            if is_fresh:
                self._stores[key] = OpenStore(key[0], meta=key[1])
            return self._stores[key], is_fresh

    # -- threads -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection = self._listener.accept()
            except (AuthenticationError, OSError, EOFError):
                self._closed.wait(REFUSED_SECONDS)
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True, name="hummock-reads-answer").start()

    def _watch(self) -> None:
        while not self._closed.wait(REVIEW_SECONDS):
            if self._activity.has_ended:
                self.close()
            else:
                self.review()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(OSError, EOFError):
            message = json.loads(connection.recv_bytes())
            specs: tuple[bytes, ...] = ()
            try:
                options = ReadOptions(message["options"])
                if message["call"] == "schema":
                    answer: dict[str, Any] = {"schema": self.schema(options)}
                else:
                    specs = self.specs(options, message["columns"])
                    answer = {"specs": len(specs)}
            except Exception as error:      # the asking process raises it
                answer = {"error": f"{type(error).__name__}: {error}"}
            connection.send_bytes(json.dumps(answer).encode())
            for spec in specs:
                connection.send_bytes(spec)


def _asked(connection: Connection[Any, Any], call: str, options: ReadOptions,
           columns: list[str] | None = None) -> dict[str, Any]:
    connection.send_bytes(json.dumps({"call": call, "options": options.given, "columns": columns}).encode())
    answer: dict[str, Any] = json.loads(connection.recv_bytes())
    if "error" in answer:
        raise ReadRefused(answer["error"])
    return answer


_services: dict[str, ReadService] = {}      # by application
_services_lock = threading.Lock()


def service_of(spark: SparkSession) -> ReadService | None:
    """The service of the application; None with Spark Connect, whose driver is another process."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    application = str(spark.sparkContext.applicationId)
    with _services_lock:
        for ended in [name for name in _services if name != application]:
            _services.pop(ended).close()
        if application not in _services:
            service = ReadService(QueryActivity(spark, SOURCE), slots(spark))
            atexit.register(service.close)
            _services[application] = service
        return _services[application]
