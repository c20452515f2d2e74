"""ReaderSession: queries on a store, beside the session that writes it or as part of that one.

A read sees one committed epoch for all its tables, which is never older than that of the read before it [R15]. Errors
of a statement are typed and leave the session unchanged. Thread safe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.base.closing import ClosedAtExit
from hummock.epoch import Epoch
from hummock.errors import no_attribute
from hummock.metrics import MetricsSnapshot
from relational.catalog.job_failure import JobFailure
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog, TableKind
from relational.errors import CatalogError
from relational.plan.logical import ExternalScan, Scan
from relational.relation import Relation
from relational.result import ResultSet
from relational.types import DataType
from stream.error_counts import RunningErrorCounts, committed_errors
from stream.errors import ReadOnlySession, SessionClosed
from stream.session.change_cursor import cursors_of, drop_cursor
from stream.session.change_feed import ChangeFeed, checked_epoch
from stream.session.job_status import jobs_table, session_text
from stream.session.queries import SessionQueries
from stream.session.snapshot import CommittedOffsets, Snapshot
from stream.session.table import StoredRelation

if TYPE_CHECKING:
    from relational.sql.parameters import Given
    from stream.serving import Host
    from stream.session.variables import Names
    from stream.sink_delivery import DeliveryStatus
    from stream.worker.session_worker import SessionWorker


FileTypes = Mapping[str, str | DataType]
"""Types of columns of files, by name."""


ELSEWHERE = {
    "cursor": "the session itself: query(text, params) gives rows, execute(text, params) a number",
    "commit": "flush(), which waits for the next commit, or `with db.transaction():`",
    "begin": "`with db.transaction():`", "rollback": "`with db.transaction():`, left with an error",
    "tables": "names(), or SHOW TABLES", "views": "names(), or SHOW VIEWS", "list_tables": "names()",
    "read": "table(name)", "from_df": "create_table(name, frame)",
    "register": "create_table(name, frame); a FROM also names frames that are variables",
    "insert": "table(name).insert(rows)", "subscribe": "changes(name)", "refresh": "flush(): views follow their tables",
}
"""What a session has in place of attributes of SQLite, psycopg and DuckDB."""


class ReaderSession(ClosedAtExit):
    """What `connect(url, role="reader")` gives: SQL over the committed rows of a store, any number of them beside the
    session that runs its jobs. It follows the commits of that one; what it reads stays readable for it meanwhile, and
    is released with it. Changes raise ReadOnlySession: `stream.Inbox` hands rows to the session that runs.

        writer = stream.connect("stock", create=True)
        writer.sql("CREATE TABLE stock (item VARCHAR PRIMARY KEY, pieces INT)")
        writer.sql("INSERT INTO stock VALUES ('nut', 5); FLUSH")
        with stream.connect("stock", role="reader") as reader:      # most often in another process
            reader.table("stock").get("nut")                        # {'item': 'nut', 'pieces': 5}
        writer.close()
    """

    def __init__(self, host: Host, worker: SessionWorker | None = None) -> None:
        """`worker`: carries changes out, for the session that writes."""
        from relational.sql.settings import Settings  # the SQL grammar, which `import stream` does without
        from stream.session.statements import SessionStatements
        from stream.session.transaction import Transaction

        self._host = host
        self._is_closed = False
        self._reads_variables = host.options.stream.replacement_scans
        self._transaction = Transaction(host, worker)
        self._offsets = CommittedOffsets(host)
        self._queries = SessionQueries(host, self._transaction, Settings(), worker, self.flush)
        self._statements = SessionStatements(
            host, self._queries, self._relation_of, self.flush, self.jobs, self.errors, self.epochs, self.cursors
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise no_attribute(self, name, ELSEWHERE)

    def __repr__(self) -> str:
        shown = f"{self._host.url!r}, closed" if self.is_closed else session_text(self._host)
        return f"{type(self).__name__}({shown})"

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; in a forked child it is."""
        return self._is_closed or self._host.storage.is_forked

    # -- SQL -------------------------------------------------------------------------------------------

    def sql(
        self, text: str, params: Given = (), *, frames: Mapping[str, object] | None = None
    ) -> Relation | ResultSet | ChangeFeed | int | None:
        """Run the statements of `text`; the result of the last one.

        SELECT: a lazy Relation. SHOW, DESCRIBE, EXPLAIN: rows. INSERT, UPDATE, DELETE: rows affected, with RETURNING
        the rows that it gives. CREATE: the Table, or the Relation of a view. COMMIT: the rows affected by the
        transaction, if it has changes. SUBSCRIBE: a ChangeFeed. Others: None. ParseError and BindError point at the
        text; StatementError if a statement failed.

        `params`: values for ? or $1 in order, or for :name by name, in a text of one query or data change.

        A FROM can name a frame of pandas, Polars or Arrow, and another result: one of `frames` by its name, without
        these a variable of the function that calls, or of its module, unless the catalog has that name.

            trips = polars.read_parquet("trips.parquet")
            db.sql("INSERT INTO trip SELECT * FROM trips WHERE miles > 0")
        """
        self._check_open()
        return self._statements.run_text(text, params, self._names(frames))[0]

    def query(self, text: str, params: Given = (), *, frames: Mapping[str, object] | None = None) -> ResultSet:
        """The rows of one query, at once: `sql(text, params)` without a Relation in between. Its plan is kept for the
        next call with this text, whatever the values of `params`, and a row is looked up by its key in microseconds.
        `frames` as in `sql`. InvalidStatement for another statement; errors as `sql`."""
        self._check_open()
        try:
            return ResultSet(self._statements.executions.query(text, params, self._names(frames)))
        except BaseException as error:
            self._transaction.abort(error)
            raise

    def explain(self, query: str | Relation) -> str:
        """The plan of a statement or a relation: its logical plan, and the stream plan of a view of it."""
        self._check_open()
        if isinstance(query, Relation):
            return self._statements.explain_query(query.plan)
        return "\n".join(map(self._statements.explain, self._statements.bind(query, (), self._names(None))))

    def _names(self, frames: Mapping[str, object] | None) -> Names:
        """Where a statement finds variables. REQUIRES that the caller is the method that the program calls."""
        if frames is not None or not self._reads_variables:
            return frames
        return sys._getframe(2)

    # -- files -----------------------------------------------------------------------------------------
    # Paths are relative to the working directory of the process, or URLs of object stores.

    def read_parquet(self, path: str | PathLike[str], *, types: FileTypes = MappingProxyType({})) -> Relation:
        """The rows of a Parquet file, of those in a directory, or of those that a pattern names ("bids/*.parquet"): a
        relation like any other, which reads them whenever its rows are asked for, and the columns that are needed.

            db.create_table_as("bids", db.read_parquet("bids/*.parquet").filter(col("price") > 100))

        `types`: of columns that are to have other types than in the first file. ConnectorError for files that are not
        there or cannot be read."""
        return self._relation_of_files("parquet", path, types, {})

    def read_csv(
        self,
        path: str | PathLike[str],
        *,
        header: bool = True,
        names: Sequence[str] | None = None,
        delimiter: str = ",",
        quote: str = '"',
        escape: str = "",
        null: str = "",
        types: FileTypes = MappingProxyType({}),
    ) -> Relation:
        """As `read_parquet`, of CSV files, also compressed ones. The types of columns are told by the beginning of the
        first file, unless `types` has them; a later value of another type is MalformedRows, with its record and column.

            db.read_csv("people.csv", delimiter=";", types={"zip": "varchar"})

        `names`: of the columns of files without a `header`. `null`: the text that stands for NULL where it is not
        quoted."""
        options = {"header": str(header), "delimiter": delimiter, "quote": quote, "escape": escape, "null": null}
        named = {} if names is None else {"names": ",".join(names)}
        return self._relation_of_files("csv", path, types, options | named)

    def read_json(self, path: str | PathLike[str], *, types: FileTypes = MappingProxyType({})) -> Relation:
        """As `read_csv`, of files with a JSON object a line."""
        return self._relation_of_files("json", path, types, {})

    def _relation_of_files(
        self, form: str, path: str | PathLike[str], types: FileTypes, options: Mapping[str, str]
    ) -> Relation:
        from stream.connector.file_rows import FileRows
        from stream.session.statements import data_type

        self._check_open()
        known = {name: data_type(kind) for name, kind in types.items()}
        return Relation(ExternalScan(FileRows(form, fspath(path), options, known)), self._queries)

    # -- what there is ---------------------------------------------------------------------------------

    def table(self, name: str) -> StoredRelation:
        """The table or materialized view of that name. NotFound; CatalogError for a view: `relation` reads it."""
        whole = ObjectName.parse(name)
        found = self._relation_of(whole)
        if not isinstance(found, StoredRelation):
            kind = self._host.catalog.resolve(whole).kind
            raise CatalogError(f"{name!r} is {kind.one}, which has no rows of its own: relation({name!r})", name=name)
        return found

    def relation(self, name: str) -> Relation:
        """The rows of a table, view or index of that name; NotFound."""
        return self._relation_of(ObjectName.parse(name))

    def names(self) -> tuple[str, ...]:
        """Names of all tables, views and indexes, of every schema."""
        known = self._host.catalog.snapshot
        return tuple(known.show(known.list()))

    def _relation_of(self, name: ObjectName) -> Relation:
        self._check_open()
        catalog = self._host.catalog
        table = catalog.resolve(name)
        if table.kind is TableKind.VIEW:
            from relational.sql.query import rows_of

            return Relation(rows_of(table, catalog), self._queries, frozenset({table.id}))
        if table.kind is TableKind.SOURCE:
            return Relation(Scan(table), self._queries)
        return self._handle_of(table)

    def _handle_of(self, table: TableCatalog) -> StoredRelation:
        return StoredRelation.of(table, self._queries)

    def at(self, epoch: int | None = None) -> Snapshot:
        """A snapshot of everything committed up to `epoch`, by default the newest one, for several consistent reads;
        use it in a `with` block. EpochTooOld, InvalidEpoch."""
        self._check_open()
        return Snapshot(self._host, None if epoch is None else checked_epoch(epoch))

    @property
    def committed_epoch(self) -> Epoch:
        """The epoch of a read that begins now."""
        return self._queries.epoch

    def source_offsets(self, name: str, *, epoch: int | None = None) -> dict[str, str]:
        """The offsets of the connector of table `name`: split -> offset, as committed at `epoch` or last.

        {} for a table without a connector. NotFound, EpochTooOld.
        """
        if epoch is None:
            self._check_open()
            return self._offsets.of(name)
        with self.at(epoch) as snapshot:
            return snapshot.offsets(name)

    def changes(
        self,
        name: str,
        since: int | None = None,
        *,
        follow: bool = True,
        cursor: str | None = None,
        retention_ms: int | None = None,
    ) -> ChangeFeed:
        """What changes in a table or materialized view: an iterator, also an asynchronous one, over Arrow batches, see
        `ChangeFeed`. It begins with the rows that are there, or with what changed after the epoch `since`. It waits for
        what comes; unless `follow`, it ends with what is committed by now. NotFound; CatalogError for a view, which has
        no rows of its own; JobCreating, JobFailed; EpochTooOld and InvalidEpoch for `since`.

        `cursor`: a name under which the store keeps the position, for a later feed of any process, which goes on there,
        whatever its `since`; what was not passed before comes again, with the same `_epoch`, so that a follower which
        keeps the number beside what it writes has each change once. `retention_ms`: how long that position is kept
        after its last use, a day by default. InvalidOption, CursorTaken, CursorExpired."""
        return self.table(name).changes(since, follow=follow, cursor=cursor, retention_ms=retention_ms)

    def cursors(self) -> ResultSet:
        """The cursors of change feeds: name, table, the epoch up to which each has passed, NULL for none yet."""
        self._check_open()
        known, found = self._host.catalog.snapshot, list(cursors_of(self._host.meta_store))
        tables = [known.tables.get(row.table) for _, row in found]
        return ResultSet(pa.table({
            "name": pa.array([name for name, _ in found], pa.string()),
            "table": pa.array([None if table is None else str(known.name_of(table)) for table in tables], pa.string()),
            "epoch": pa.array([row.epoch or None for _, row in found], pa.uint64()),
        }))

    def drop_cursor(self, name: str) -> None:
        """Forget the cursor of a change feed, and the epochs that it keeps readable. NotFound."""
        self._check_open()
        drop_cursor(self._host.manager, self._host.meta_store, name)

    def wait_epoch(self, epoch: int, *, timeout_ms: int | None = None) -> None:
        """Wait until what was committed up to `epoch` can be read here, such as that of a `flush()` elsewhere.
        WaitEpochTimeout, by default after the option `wait_epoch_ms`."""
        self._check_open()
        self._host.storage.wait_epoch(Epoch(epoch), timeout_ms)

    # -- jobs ------------------------------------------------------------------------------------------

    def jobs(self) -> ResultSet:
        """The result of SHOW JOBS: one row per table, view, sink and index, see `stream.session.job_status`."""
        self._check_open()
        known = self._host.catalog.snapshot
        with self.at() as snapshot:
            sources = [table for table in known.jobs() if known.offset_table(table) is not None]
            offsets = {table.id: snapshot.offsets_of(table) for table in sources}
            progress = {job_id: snapshot.progress_of(known.tables[job_id]) for job_id in known.creating}
        deliveries, failed = self._deliveries(), self._host.failed_jobs()
        paused = self._are_sources_paused()
        return ResultSet(jobs_table(known, failed, offsets, progress, deliveries, sources_paused=paused))

    def errors(self) -> ResultSet:
        """The result of SHOW ERRORS: job, reason and number of rows without a value as of the committed epoch; for
        tables with connectors also the malformed records. A deleted row is no longer counted."""
        self._check_open()
        with self.at() as snapshot:
            catalog, storage = self._host.catalog, self._host.storage
            return ResultSet(committed_errors(catalog, storage, snapshot.epoch, self._running_errors()))

    @property
    def failed_jobs(self) -> tuple[JobFailure, ...]:
        """The jobs that are set aside."""
        self._check_open()
        failed = self._host.failed_jobs()
        return tuple(failed[job_id] for job_id in sorted(failed))

    def epochs(self) -> ResultSet:
        """ReadOnlySession: only the session that runs the jobs knows them."""
        raise ReadOnlySession("SHOW EPOCHS")

    def flush(self) -> Epoch:
        """ReadOnlySession: only the session that runs the jobs commits."""
        raise ReadOnlySession("FLUSH")

    def _deliveries(self) -> Mapping[int, DeliveryStatus]:
        """Of sinks, by id, as far as this process delivers."""
        return {}

    def _are_sources_paused(self) -> bool:
        return False

    def _running_errors(self) -> RunningErrorCounts | None:
        """Of the jobs that run in this process."""
        return None

    # -- metrics ---------------------------------------------------------------------------------------

    @property
    def metrics(self) -> MetricsSnapshot:
        """What the session has counted until now, and its state, by name and labels; docs/operations.md names all.

            db.metrics["hummock_committed_epoch"]
            db.metrics.total("hummock_object_store_bytes_total", direction="read")
            db.metrics.to_arrow()
        """
        self._check_open()
        return self._host.metrics.snapshot()

    @property
    def metrics_url(self) -> str | None:
        """Where the session serves its metrics to Prometheus; None without the option `metrics_port`."""
        return self._host.metrics_url

    # -- end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Releases what it reads. Idempotent. No effect in a forked child: the session belongs to the parent."""
        if not self._is_closed and not self._host.storage.is_forked:
            self._is_closed = True
            self._transaction.close()
            self._statements.close()
            self._host.close()

    def _check_open(self) -> None:
        self._host.storage.check_process()
        if self._is_closed:
            raise SessionClosed("the session is closed")
