"""The meta store that several machines share: two tables of a PostgreSQL database.

Transactions lock the single summary row, so they are serial, and read what they require after that. The server aborts
the transaction of a client that stopped in its middle, so that nothing waits for a frozen process; a commit whose
answer was lost is an `OutcomeUnknown`. Rows are verified as in the embedded store (`row_digests`), and the guard
objects in the bucket (`rollback_guard_bucket`) detect an emptied, exchanged or restored database.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import Connection, sql

from hummock.epoch import monotonic_seconds
from hummock.errors import (
    InvalidOption,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreForked,
    MetaStoreRolledBack,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
    StoreNotFound,
)
from hummock.meta.store.base import MetaOperations, MetaStore, check_key
from hummock.meta.store.rollback_guard_bucket import GUARDS, IDENTITY, BucketRollbackGuard, GuardRecord
from hummock.meta.store.row_digests import COLUMNS, DatabaseDigest, checked_value, row_digest
from hummock.meta.store.shared_clock import Reading, SharedClock
from hummock.object_store.base import ObjectStore, RandomBytes

DEFAULT_SCHEMA = "hummock"
SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
CONNECT_SECONDS = 10
CLOCK_KEPT_SECONDS = 60.0
AFTER_ALL_KEYS = "\x7f"                 # keys are printable ASCII
TABLES = (
    'CREATE TABLE IF NOT EXISTS meta (key TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL, digest BYTEA NOT NULL)',
    "CREATE TABLE IF NOT EXISTS summary (id INTEGER PRIMARY KEY, format INTEGER NOT NULL, store_id BYTEA NOT NULL,"
    " serial BIGINT NOT NULL, rows BIGINT NOT NULL, total BYTEA NOT NULL, digest BYTEA NOT NULL)",
)
CREATION_LOCK = 0x48554D4D              # advisory lock of the server: one opener creates at a time
DAMAGE = (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted)
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected,
        psycopg.errors.SerializationFailure)
LOST = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
Result = TypeVar("Result")


class PostgresMetaStore(MetaStore):
    """One connection, guarded by a lock, reopened when it was lost; any number of processes may open their own.

    `url` is a libpq URL; its parameter `schema` (default `hummock`) names the schema that holds the tables. `objects`
    are those that the store belongs to; without them an emptied database looks like a new one. Raises at opening
    `MetaStoreEmptied`, `MetaStoreCorrupt`, and `MetaStoreError` where the server does not answer or where there is no
    store and `create` is false.
    """

    def __init__(self, url: str, objects: ObjectStore | None = None, *, create: bool = True,
                 busy_timeout_ms: int = 10_000, accept_rollback: bool = False, random_bytes: RandomBytes = os.urandom,
                 on_close: Callable[[], None] | None = None):
        self._conninfo, self._schema, self._url = _parts_of(url)
        self._timeout_ms = busy_timeout_ms
        self._guard = None if objects is None else BucketRollbackGuard(objects, random_bytes)
        self._random_bytes = random_bytes
        self._lock = threading.RLock()
        self._pid, self._on_close = os.getpid(), on_close
        self._closed = False
        self._connection: Connection | None = None
        self._clock = SharedClock(self._read_clock, CLOCK_KEPT_SECONDS)
        self._acknowledged: DatabaseDigest | None = None       # the newest seen by this handle
        try:
            self._open(create, accept_rollback)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """URL without the password."""
        return self._url

    def get(self, key: str) -> bytes | None:
        check_key(key)
        query = "SELECT key, value, digest FROM meta WHERE key = %s"
        row = self._run(lambda connection: connection.execute(query, (key,), binary=True).fetchone())
        return None if row is None else checked_value(row, self._url)

    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        query = 'SELECT key, value, digest FROM meta WHERE key >= %s AND key < %s ORDER BY key COLLATE "C"'
        bounds = (prefix, prefix + AFTER_ALL_KEYS)
        rows = self._run(lambda connection: connection.execute(query, bounds, binary=True).fetchall())
        return [(row[0], checked_value(row, self._url)) for row in rows]

    def transaction(self, operations: MetaOperations) -> None:
        self._check_process()
        with self._lock:
            summary = self._run(lambda connection: self._transact(connection, operations))
            if summary is not None:
                self._note(summary)

    def verify(self) -> int:
        """Number of rows, after checking all of them and their sum. Raises `MetaStoreCorrupt`."""
        return self._run(self._verified).rows

    def now_ms(self) -> int:
        """The server's clock, by `SharedClock`."""
        return self._clock.now_ms()

    def close(self) -> None:
        """Idempotent. In a forked child it does nothing: the connection belongs to the parent."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._guard is not None and self._acknowledged is not None:
                self._guard.note(_guard_record(self._acknowledged), now=True)
            self._disconnect()
            if self._on_close is not None:
                self._on_close()

    # -- opening -------------------------------------------------------------------------------------------

    def _open(self, create: bool, accept_rollback: bool) -> None:
        guard = self._guard
        recorded = None if guard is None else guard.newest()
        exists = self._run(lambda connection: connection.execute("SELECT to_regclass('summary')").fetchone())
        if exists == (None,):
            if recorded is not None:
                raise MetaStoreEmptied(self._url, f"{GUARDS}{recorded.serial}")
            if not create:
                raise StoreNotFound(self._url)
            store_id = self._random_bytes(16) if guard is None else guard.identity(True)
            assert store_id is not None
            self._run(lambda connection: self._create(connection, store_id))
        summary = self._run(self._verified)
        identity = None if guard is None else guard.identity(create)
        if identity is not None and identity != summary.store_id:
            raise MetaStoreCorrupt(self._url, f"store id, which {IDENTITY} knows", identity.hex(),
                                   summary.store_id.hex())
        if recorded is not None and guard is not None and summary.serial < recorded.serial:
            if not accept_rollback:
                raise MetaStoreRolledBack(self._url, f"{GUARDS}{recorded.serial}", recorded.serial, summary.serial)
            guard.go_back(_guard_record(summary))
        if recorded is not None and summary.serial == recorded.serial and summary.digest != recorded.digest:
            raise MetaStoreCorrupt(self._url, "last transaction", recorded.digest.hex(), summary.digest.hex())

    def _create(self, connection: Connection, store_id: bytes) -> None:
        """Creates missing tables; several processes may try at once."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            for statement in TABLES:
                connection.execute(sql.SQL(statement))
            connection.execute(f"INSERT INTO summary ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"
                               " ON CONFLICT DO NOTHING", DatabaseDigest(store_id).row())

    def _verified(self, connection: Connection) -> DatabaseDigest:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            summary = self._read_digest(connection)
            rows = connection.execute("SELECT key, value, digest FROM meta", binary=True).fetchall()
        summary.check_rows(self._url, (row[2] for row in rows if checked_value(row, self._url) is not None))
        return summary

    # -- transactions --------------------------------------------------------------------------------------

    def _transact(self, connection: Connection, operations: MetaOperations) -> DatabaseDigest | None:
        """Runs the transaction; the database digest after it, None if nothing was to be written. Rolled back on any
        error.
        """
        writes = bool(operations.put or operations.delete)
        if not writes:
            self._check(operations, self._rows_of(connection, operations))
            return None
        try:
            connection.execute("BEGIN")
            before = self._read_digest(connection, " FOR UPDATE")
            rows = self._rows_of(connection, operations)
            self._check(operations, rows)
            changed = [key for key in (*operations.delete, *operations.put) if key in rows]
            after = before.after(operations, [(key, rows[key]) for key in changed])
            self._write(connection, operations, changed, after)
        except BaseException:
            self._roll_back(connection)
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            self._disconnect()
            raise OutcomeUnknown(f"{self._url}: commit ended with {error}") from error
        except BaseException:
            self._disconnect()
            raise
        return after

    def _roll_back(self, connection: Connection) -> None:
        """Ends the transaction, if need be by closing the connection: what remained open would join the next one."""
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self._disconnect()
        except BaseException:
            self._disconnect()
            raise

    def _rows_of(self, connection: Connection, operations: MetaOperations) -> dict[str, bytes]:
        keys = list({*operations.require, *operations.delete, *operations.put})
        query = "SELECT key, value, digest FROM meta WHERE key = ANY(%s)"
        rows = connection.execute(query, (keys,), binary=True).fetchall()
        return {row[0]: checked_value(row, self._url) for row in rows}

    def _check(self, operations: MetaOperations, rows: dict[str, bytes]) -> None:
        for key, expected in operations.require.items():
            if (got := rows.get(key)) != expected:
                raise PreconditionFailed(key, expected, got)

    def _write(self, connection: Connection, operations: MetaOperations, changed: list[str],  # type: ignore[valid-type]
               after: DatabaseDigest) -> None:
        if changed:
            connection.execute("DELETE FROM meta WHERE key = ANY(%s)", (changed,))
        for key, value in operations.put.items():
            connection.execute("INSERT INTO meta (key, value, digest) VALUES (%s, %b, %b)",
                               (key, value, row_digest(key, value)))
        connection.execute("UPDATE summary SET (serial, rows, total, digest) = (%s, %s, %s, %s) WHERE id = 0",
                           after.row()[3:])

    def _read_digest(self, connection: Connection, lock: str = "") -> DatabaseDigest:
        query = sql.SQL(f"SELECT {COLUMNS} FROM summary WHERE id = 0{lock}")
        return DatabaseDigest.of_row(connection.execute(query, binary=True).fetchone(), self._url)

    def _note(self, summary: DatabaseDigest) -> None:
        self._acknowledged = summary
        if self._guard is not None:
            self._guard.note(_guard_record(summary))

    # -- the connection ------------------------------------------------------------------------------------

    def _read_clock(self) -> Reading:
        def work(connection: Connection) -> Reading:
            asked = monotonic_seconds()
            query = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            [(server_ms,)] = connection.execute(query).fetchall()
            return Reading(server_ms, asked, monotonic_seconds())

        return self._run(work)

    def _check_process(self) -> None:
        """Raises `MetaStoreForked` in a forked child: before any wait, since a parent's thread may have the lock."""
        if self._pid != os.getpid():
            raise MetaStoreForked(self._url, self._pid, os.getpid())

    def _run(self, work: Callable[[Connection], Result]) -> Result:
        """Runs `work`, once more if the connection was lost before its end: nothing was written by then."""
        self._check_process()
        with self._lock:
            if self._closed:
                raise StoreClosed(f"meta store {self._url}")
            was_connected = self._connection is not None
            try:
                with self._typed():
                    return work(self._connect())
            except _ConnectionLost as error:
                if not was_connected:
                    raise MetaStoreError(str(error)) from error
            try:
                with self._typed():
                    return work(self._connect())
            except _ConnectionLost as error:
                raise MetaStoreError(str(error)) from error

    def _connect(self) -> Connection:
        if self._connection is None:
            milliseconds = self._timeout_ms
            connection = psycopg.connect(self._conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS,
                                         tcp_user_timeout=milliseconds, application_name="hummock")
            try:
                for name, value in (
                    ("search_path", self._schema), ("synchronous_commit", "on"), ("client_min_messages", "warning"),
                    ("lock_timeout", milliseconds), ("statement_timeout", 2 * milliseconds),
                    ("idle_in_transaction_session_timeout", max(1, milliseconds // 2)),
                ):
                    connection.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
            except BaseException:
                with suppress(psycopg.Error):
                    connection.close()
                raise
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Translates errors of the server and the network."""
        try:
            yield
        except psycopg.Error as error:
            text = f"{self._url}: {type(error).__name__}: {str(error).strip()}"
            if isinstance(error, BUSY):
                raise MetaStoreBusy(self._url, self._timeout_ms) from error
            if isinstance(error, DAMAGE):
                raise MetaStoreCorrupt(self._url, "the database", None, str(error)) from error
            if isinstance(error, psycopg.errors.UndefinedTable):
                raise MetaStoreEmptied(self._url, "what this process read before") from error
            if isinstance(error, LOST):
                self._disconnect()
                raise _ConnectionLost(text) from error
            raise MetaStoreError(text) from error


class _ConnectionLost(MetaStoreError):
    """The connection was lost before the work was done."""


def _guard_record(summary: DatabaseDigest) -> GuardRecord:
    return GuardRecord(summary.store_id, summary.serial, summary.digest)


def _parts_of(url: str) -> tuple[str, str, str]:
    """The libpq parameters, the schema, and the URL without its password. Raises `InvalidOption`."""
    parts = urlsplit(url)
    parameters: list[tuple[str, Any]] = parse_qsl(parts.query)
    schema = dict(parameters).get("schema", DEFAULT_SCHEMA)
    if parts.scheme not in ("postgresql", "postgres") or not SCHEMA_NAME.fullmatch(schema):
        raise InvalidOption("meta", parts._replace(netloc="").geturl(),
                            "postgresql://host/database, with a schema of small letters, digits and _")
    query = urlencode([(name, value) for name, value in parameters if name != "schema"])
    shown = urlencode([(name, value) for name, value in parameters if name != "password"])
    host = parts.netloc.rpartition("@")[2]
    return (urlunsplit(parts._replace(query=query)), schema,
            urlunsplit(parts._replace(netloc=host, query=shown, fragment="")))
