"""The embedded meta store: one SQLite file that is verified on every read.

SQLite has no page checksum: it returns a flipped bit in a row as data. So each row has a digest that every read
verifies, a summary row has count and sum of all digests, both checked when the store is opened together with SQLite's
own integrity check, and a `RollbackGuard` beside the file records the last acknowledged transaction. WAL with
synchronous=FULL, because a rollback journal with FULL was seen to lose an acknowledged transaction at power loss, and
NORMAL loses many.

    meta(key TEXT, value BLOB, digest)      summary(0, format, store_id, serial, rows, total, digest)

The rows have row ids, so that a search compares keys in an index: in a table WITHOUT ROWID it read the whole value of
each row that it passed, megabytes of a version of many files. Such a table, of format 1, is replaced by the first
transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hummock.epoch import monotonic_seconds
from hummock.errors import (
    DiskFull,
    FormatTooNew,
    MetaStoreBusy,
    MetaStoreCorrupt,
    MetaStoreEmptied,
    MetaStoreError,
    MetaStoreForked,
    MetaStoreReplaced,
    MetaStoreRolledBack,
    OutcomeUnknown,
    PreconditionFailed,
    StoreClosed,
    StoreNotFound,
)
from hummock.meta.store.base import MetaOperations, MetaStore, check_key
from hummock.meta.store.rollback_guard_file import Acknowledged, RollbackGuard, SerialNames
from hummock.meta.store.row_digests import COLUMNS, FORMAT, DatabaseDigest, checked_value, row_digest
from hummock.object_store.base import RandomBytes
from hummock.object_store.full_disk import is_disk_full

OPEN_PAUSE_SECONDS = 0.01
PART_KEYS = 200                         # per statement
LARGE_BYTES = 1 << 16
LARGE = "?"                             # placeholder of a value that is read separately
READ_ALL = f"""SELECT (SELECT {" || ' ' || ".join(f"quote({column})" for column in COLUMNS.split(", "))}
 FROM summary WHERE id = 0) || coalesce((SELECT group_concat(char(10) || CASE WHEN length(value) <= {LARGE_BYTES}
 THEN quote(value) || ' ' || quote(digest) ELSE '{LARGE} {LARGE}' END || ' ' || key, '')
 FROM meta WHERE key IN ({{}})), '')"""
AFTER_ALL_KEYS = "\x7f"                 # keys are printable ASCII
META = "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL, digest BLOB NOT NULL)"
SUMMARY = ("CREATE TABLE summary (id INTEGER PRIMARY KEY, format INTEGER, store_id BLOB, serial INTEGER,"
           " rows INTEGER, total BLOB, digest BLOB)")
SCHEMAS = {1: (f"{META} WITHOUT ROWID", SUMMARY), FORMAT: (META, SUMMARY)}     # by format
TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH)
BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
Item = TypeVar("Item")


class SqliteMetaStore(MetaStore):
    """One connection, guarded by a lock; any number of processes may each open their own.

    Raises at opening `MetaStoreEmptied`, `MetaStoreCorrupt`, `MetaStoreBusy`, and `StoreNotFound` where
    there is no store and `create` is false. After a fork every method raises `MetaStoreForked`.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, busy_timeout_ms: int = 10_000,
                 accept_rollback: bool = False, random_bytes: RandomBytes = os.urandom):
        self._path = Path(path).absolute()
        self._timeout_ms = busy_timeout_ms
        self._guard = RollbackGuard(self._path.with_name(self._path.name + ".initialised"))
        self._names, self._accepts_rollback = SerialNames(self._path), accept_rollback
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        with self._typed():
            recorded, known = self._check_presence(create), self._names.newest()
            self._connection = sqlite3.connect(
                self._path, timeout=busy_timeout_ms / 1000, isolation_level=None, check_same_thread=False)
            status = self._path.stat()
            self._file = status.st_dev, status.st_ino
        try:
            self._open_patiently(recorded, known, random_bytes)
        except BaseException:
            self._connection.close()
            raise

    @property
    def url(self) -> str:
        return str(self._path)

    def get(self, key: str) -> bytes | None:
        check_key(key)
        with self._session() as connection:
            return self._read(connection, key)

    def list(self, prefix: str) -> list[tuple[str, bytes]]:
        with self._session() as connection:
            rows = connection.execute(
                "SELECT key, value, digest FROM meta WHERE key >= ? AND key < ? ORDER BY key",
                (prefix, prefix + AFTER_ALL_KEYS)).fetchall()
            return [(row[0], self._checked(row)) for row in rows]

    def transaction(self, operations: MetaOperations) -> None:
        with self._session() as connection:
            self.check_present()
            connection.executescript("BEGIN IMMEDIATE")         # acquires the GIL once, `execute` five times
            before, held = self._read_all(connection, {**operations.require, **operations.put,
                                                       **dict.fromkeys(operations.delete)})
            if before.format < FORMAT:
                before = _with_row_ids(connection, before)
            for key, expected in operations.require.items():
                if (got := held.get(key)) != expected:
                    raise PreconditionFailed(key, expected, got)
            summary = self._apply(connection, operations, before, held)
            try:
                connection.commit()
                self._guard.write(Acknowledged(summary.store_id, summary.serial))
                self._names.note(summary.store_id, summary.serial)
            except (sqlite3.Error, OSError) as error:
                if _is_full(error) and self._is_undone(connection, before):
                    raise self._full(error) from error
                raise OutcomeUnknown(f"{self._path}: commit ended with {error}") from error

    def check_present(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError as error:
            raise MetaStoreEmptied(str(self._path), "this process, which opened it,") from error
        if (found := (status.st_dev, status.st_ino)) != self._file:
            raise MetaStoreReplaced(str(self._path), f"file {self._file}", f"file {found}")

    def _is_undone(self, connection: sqlite3.Connection, before: DatabaseDigest) -> bool:
        """Whether the transaction that followed `before` certainly did not happen."""
        try:
            if connection.in_transaction:
                connection.rollback()
            return self._read_digest(connection).serial == before.serial
        except (sqlite3.Error, MetaStoreError):
            return False

    def _full(self, error: BaseException) -> DiskFull:
        return DiskFull(self._path.name, str(self._path.parent), f"ENOSPC: {error}")

    def verify(self) -> int:
        """Number of rows, after checking all of them and their sum. Raises `MetaStoreCorrupt`."""
        with self._session() as connection:
            connection.execute("BEGIN")
            return self._verified(connection).rows

    def close(self) -> None:
        """Idempotent. In a forked child it does nothing: the file's locks belong to the parent."""
        if self._pid == os.getpid() and not self._closed:
            with self._lock, self._typed():
                self._closed = True
                self._connection.close()

    def _check_presence(self, create: bool) -> Acknowledged | None:
        recorded = self._guard.read()
        exists = self._path.exists() and self._path.stat().st_size > 0
        if recorded is not None and not exists:
            raise MetaStoreEmptied(str(self._path), str(self._guard.path))
        if not exists and not create:
            raise StoreNotFound(str(self._path.parent))
        if not exists:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        return recorded

    def _open_patiently(self, recorded: Acknowledged | None, known: Mapping[bytes, int],
                        random_bytes: RandomBytes) -> None:
        """Opens within the busy timeout: SQLite itself does not wait while the journal mode changes."""
        deadline = monotonic_seconds() + self._timeout_ms / 1000
        while True:
            try:
                return self._open(recorded, known, random_bytes)
            except MetaStoreBusy:
                if monotonic_seconds() >= deadline:
                    raise
                time.sleep(OPEN_PAUSE_SECONDS)

    def _open(self, recorded: Acknowledged | None, known: Mapping[bytes, int], random_bytes: RandomBytes) -> None:
        """`recorded` and `known` were read earlier: the database must not be older than they are."""
        with self._session() as connection:
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL", "fullfsync = ON"):
                connection.execute(f"PRAGMA {setting}")
            self._initialise(connection, recorded, random_bytes)
        with self._session() as connection:
            connection.execute("BEGIN")
            summary = self._verified(connection)
        if recorded is None:
            self._create_guard()
        elif summary.store_id != recorded.store_id:
            raise MetaStoreCorrupt(str(self._path), "store id", recorded.store_id.hex(),
                                   summary.store_id.hex())
        elif summary.serial < recorded.serial:
            self._rolled_back(summary, self._guard.path, recorded.serial)
        named = known.get(summary.store_id, 0)
        if summary.serial < named:
            self._rolled_back(summary, self._names.name_of(summary.store_id, named), named)

    def _rolled_back(self, summary: DatabaseDigest, guard: Path, acknowledged: int) -> None:
        """Raises, or accepts the database as the newest state, if that was requested."""
        if not self._accepts_rollback:
            raise MetaStoreRolledBack(str(self._path), str(guard), acknowledged, summary.serial)
        with self._session() as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = self._read_digest(connection)
            self._guard.replace(Acknowledged(now.store_id, now.serial))
            self._names.go_back(now.store_id, now.serial)

    def _create_guard(self) -> None:
        """Creates the guard file of a store that has none, under the lock that excludes other processes."""
        with self._session() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._guard.read() is None:
                summary = self._read_digest(connection)
                self._guard.write(Acknowledged(summary.store_id, summary.serial))

    def _initialise(self, connection: sqlite3.Connection, recorded: Acknowledged | None,
                    random_bytes: RandomBytes) -> None:
        """Creates the tables if the file has none; several processes may try at once."""
        if connection.execute(TABLES).fetchone() is None:
            if recorded is not None:
                raise MetaStoreEmptied(str(self._path), str(self._guard.path))
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise MetaStoreError(f"{self._path}: the file system allows no write-ahead log, only {mode}")
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute(TABLES).fetchone() is None:
                for statement in SCHEMAS[FORMAT]:
                    connection.execute(statement)
                self._write_digest(connection, DatabaseDigest(random_bytes(16), format=FORMAT))
            connection.execute("COMMIT")
        connection.execute("BEGIN")
        found = tuple(sql for (sql,) in connection.execute(TABLES))
        if found not in SCHEMAS.values() or found != SCHEMAS.get(self._read_digest(connection).format):
            self._check_format(connection)
            raise MetaStoreCorrupt(str(self._path), "schema", SCHEMAS, found)
        connection.execute("COMMIT")
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            raise MetaStoreCorrupt(str(self._path), "journal mode", "wal", mode)

    def _check_format(self, connection: sqlite3.Connection) -> None:
        """Raises `FormatTooNew` if the tables are not ours and were created by a newer release."""
        with suppress(sqlite3.Error):
            row = connection.execute("SELECT format FROM summary").fetchone()
            if row is not None and isinstance(row[0], int) and row[0] > FORMAT:
                raise FormatTooNew(str(self._path), row[0], FORMAT)

    def _verified(self, connection: sqlite3.Connection) -> DatabaseDigest:
        report = [line for (line,) in connection.execute("PRAGMA integrity_check(8)")]
        if report != ["ok"]:
            raise MetaStoreCorrupt(str(self._path), "SQLite structure", "ok", "; ".join(map(str, report)))
        summary = self._read_digest(connection)
        rows = connection.execute("SELECT key, value, digest FROM meta ORDER BY key")
        summary.check_rows(str(self._path), (row[2] for row in rows if self._checked(row) is not None))
        return summary

    def _apply(self, connection: sqlite3.Connection, operations: MetaOperations, before: DatabaseDigest,
               held: Mapping[str, bytes]) -> DatabaseDigest:
        """Applies the operations; the digest after them. `held`: the current values of their keys."""
        changed = [key for key in (*operations.delete, *operations.put) if key in held]
        for keys in _parts([key for key in operations.delete if key in held]):
            connection.execute(f"DELETE FROM meta WHERE key IN ({_marks('?', keys)})", keys)
        for rows in _parts([(key, value, row_digest(key, value)) for key, value in operations.put.items()]):
            connection.execute(f"INSERT OR REPLACE INTO meta VALUES {_marks('(?, ?, ?)', rows)}",
                               tuple(chain.from_iterable(rows)))
        after = before.after(operations, [(key, held[key]) for key in changed])
        self._write_digest(connection, after)
        return after

    def _read_all(self, connection: sqlite3.Connection, keys: Iterable[str]) -> tuple[DatabaseDigest, dict[str, bytes]]:
        """The summary row, and the values of `keys`, as one text: each column of each row would acquire the GIL."""
        rows: dict[str, bytes] = {}
        for some in _parts(list(keys)) or [[]]:
            text, = connection.execute(READ_ALL.format(_marks("?", some)), some).fetchone()
            try:
                head, *lines = text.split("\n")
                summary = DatabaseDigest.of_row(tuple(map(_literal, head.split(" "))), str(self._path))
                found = [line.split(" ", 2) for line in lines]
                read = {key: (key, _literal(value), _literal(digest)) for value, digest, key in found}
            except (AttributeError, ValueError) as error:       # no summary, or invalid types
                raise MetaStoreCorrupt(str(self._path), "rows of a transaction", None, text) from error
            for key, row in read.items():
                value = self._read(connection, key) if row[1] == LARGE else self._checked(row)
                if value is not None:
                    rows[key] = value
        return summary, rows

    def _read(self, connection: sqlite3.Connection, key: str) -> bytes | None:
        row = connection.execute("SELECT key, value, digest FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._checked(row)

    def _checked(self, row: tuple) -> bytes:
        return checked_value(row, str(self._path))

    def _read_digest(self, connection: sqlite3.Connection) -> DatabaseDigest:
        row = connection.execute("SELECT * FROM summary WHERE id = 0").fetchone()
        return DatabaseDigest.of_row(row, str(self._path))

    def _write_digest(self, connection: sqlite3.Connection, summary: DatabaseDigest) -> None:
        connection.execute("INSERT OR REPLACE INTO summary VALUES (?, ?, ?, ?, ?, ?, ?)", summary.row())

    @contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        """The connection, exclusively; rolls back a transaction that is left open."""
        if self._pid != os.getpid():
            raise MetaStoreForked(str(self._path), self._pid, os.getpid())
        with self._lock, self._typed():
            if self._closed:
                raise StoreClosed(f"meta store {self._path}")
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Translates errors of SQLite and the system."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in BUSY_CODES:
                raise MetaStoreBusy(str(self._path), self._timeout_ms) from error
            if code == sqlite3.SQLITE_FULL:
                raise self._full(error) from error
            if code in DAMAGE_CODES or "malformed" in str(error):
                raise MetaStoreCorrupt(str(self._path), "SQLite file", None, str(error)) from error
            raise MetaStoreError(f"{self._path}: {type(error).__name__}: {error}") from error
        except UnicodeError as error:
            raise MetaStoreCorrupt(str(self._path), "text", "UTF-8", str(error)) from error
        except OSError as error:
            if isinstance(error, MetaStoreError):       # MetaStoreBusy is a TimeoutError, so an OSError
                raise
            if is_disk_full(error):
                raise self._full(error) from error
            raise MetaStoreError(f"{self._path}: {type(error).__name__}: {error}") from error


def _with_row_ids(connection: sqlite3.Connection, before: DatabaseDigest) -> DatabaseDigest:
    """Replaces the rows' table of format 1, in the transaction that is open; the digest of the same rows since then."""
    for statement in ("ALTER TABLE meta RENAME TO former", META,
                      "INSERT INTO meta SELECT key, value, digest FROM former", "DROP TABLE former"):
        connection.execute(statement)
    return replace(before, format=FORMAT)


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return is_disk_full(error)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _literal(text: str) -> int | bytes | str:
    """The value of a text from SQLite's `quote`; any other text unchanged."""
    if text.startswith("X'"):
        return bytes.fromhex(text[2:-1])
    return int(text) if text.lstrip("-").isdecimal() else text


def _parts(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[at:at + PART_KEYS] for at in range(0, len(items), PART_KEYS)]


def _marks(mark: str, items: Sequence[object]) -> str:
    return ", ".join([mark] * len(items))
