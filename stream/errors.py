"""Errors of the streaming engine.

StreamError
├── PlanNotSupported (ValueError)      a query that cannot be kept fresh, with the reason
├── BackfillRefused (ValueError)       a view whose history no bulk backfill can compute, or may not now
├── ConnectorError                     an external system refused, failed or sent unreadable data
│   ├── UnknownConnector (KeyError)    no such connector is registered
│   ├── MalformedRows (ValueError)     rows of a split that the table cannot hold
│   └── InvalidOffset (ValueError)     a stored offset that the reader does not understand
├── StatementError                     one DML statement failed; it changed nothing
│   ├── DuplicateKey                   an insert met a row with the same primary key
│   ├── AppendOnlyViolation            UPDATE or DELETE on a table that declared itself append-only
│   ├── TableLoading                   a bulk load writes the table, which accepts no statements meanwhile
│   └── InvalidStatement (ValueError)  a row that the table cannot hold (type, NULL in a key, an error)
├── TransactionAborted                 a statement after an error in its transaction, before ROLLBACK
├── TransactionTooLarge (ValueError)   the changes of a transaction exceed what one buffers
├── BulkLoadRefused (ValueError)       a load that cannot be carried out; nothing of it is left
│   └── DuplicateRows                  rows of one key among those to load, or with the key of a stored row
├── KernelsChanged                     a view whose rows an older release computed differently
├── ReadOnlySession (ValueError)       a change, or a question to running jobs, in a session that only reads
├── CursorTaken                        a change feed whose cursor another one uses since, or that was dropped
├── CursorExpired                      a cursor that was not used for longer than its retention
├── StatementsLost                     statements that a recovery undid and could not send again
├── JobFailed                          a table or view that was set aside, with the reason and the remedy
├── JobCreating                        a view that has not read all existing rows of its tables yet
├── JobNotRunning                      a job that another one needs to begin does not run
├── ProfileInterrupted                 a job whose actors were replaced while they were measured
├── InconsistentStream                 a change stream violated its contract: a bug upstream, named
├── ActorFailed                        an actor ended with an error, its cause chained
├── BarrierTimeout (TimeoutError)      a barrier was not collected in time; names the missing actors
├── RecoveryFailed                     recovery gave up after its limit of attempts
├── ChannelClosed                      the channel was closed
└── SessionClosed                      a call on a session after close()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from relational.errors import shortened

REASON_BYTES = 1_000
"""Maximum length of a reason; the middle of a longer one is omitted."""
SHOWN = 20
"""How many items an error's text lists at most; its fields hold all."""


class StreamError(Exception):
    """Base class of all errors of this package."""


class PlanNotSupported(StreamError, ValueError):
    """A logical plan for which no stream plan exists. `node` names the operator, `reason` says why."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node} cannot be maintained as a stream: {reason}")
        self.node = node
        self.reason = reason


class BackfillRefused(StreamError, ValueError):
    """The history of view `view` is not computed in bulk: `reason`. Nothing was changed."""

    def __init__(self, view: str, reason: str) -> None:
        super().__init__(f"no bulk backfill of {view!r}: {reason}")
        self.view = view
        self.reason = reason


class ConnectorError(StreamError):
    """An external system refused, failed or sent unreadable data."""

    def __init__(self, connector: str, reason: str) -> None:
        super().__init__(f"connector {connector!r}: {reason}")
        self.connector = connector
        self.reason = reason


class UnknownConnector(ConnectorError, KeyError):
    """No connector of that name is registered; `known` lists those that are."""

    def __init__(self, connector: str, known: Iterable[str]) -> None:
        self.known = tuple(sorted(known))
        super().__init__(connector, f"is not registered; known: {', '.join(self.known) or 'none'}")

    def __str__(self) -> str:
        return str(self.args[0])


class MalformedRows(ConnectorError, ValueError):
    """A chunk of `split` that the table cannot hold. `column` is the name of the invalid column and `row` the first
    invalid row of the chunk, counted from 0; None if the error concerns no particular column or row.
    """

    def __init__(
        self, connector: str, split: str, reason: str, *, column: str | None = None, row: int | None = None
    ) -> None:
        names = ("split", split), ("column", column)
        position = [f"{what} {name!r}" for what, name in names if name is not None] + [f"row {row}"] * (row is not None)
        super().__init__(connector, f"{', '.join(position)}: {reason}")
        self.reason = reason
        self.split = split
        self.column = column
        self.row = row


class InvalidOffset(ConnectorError, ValueError):
    """A stored offset that the reader of `split` does not understand."""

    def __init__(self, connector: str, split: str, offset: str) -> None:
        super().__init__(connector, f"split {split!r} cannot seek to offset {offset!r}")
        self.split = split
        self.offset = offset


class StatementError(StreamError):
    """One DML statement failed and changed nothing. `table` is the table's name; "": it names none."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table!r}: {reason}" if table else reason)
        self.table = table
        self.reason = reason


class DuplicateKey(StatementError):
    """An insert met a row with the same primary key, and the table's conflict rule is `error`."""

    def __init__(self, table: str, key: tuple) -> None:
        super().__init__(table, f"a row with the primary key {key!r} exists already; a table created with "
                                "ON CONFLICT OVERWRITE or IGNORE takes such rows")
        self.key = key


class AppendOnlyViolation(StatementError):
    """UPDATE or DELETE on a table that declared itself append-only."""

    def __init__(self, table: str, verb: str) -> None:
        super().__init__(table, f"{verb} is refused: the table is append-only")
        self.verb = verb


class TableLoading(StatementError):
    """A bulk load writes the table, which accepts no statements meanwhile."""

    def __init__(self, table: str) -> None:
        super().__init__(table, "a bulk load is under way: send the statement again after it")


class TransactionAborted(StreamError):
    """A statement in a transaction in which another one failed, with the error `cause`: nothing of it takes effect."""

    def __init__(self, cause: BaseException) -> None:
        shown = shortened(f"{type(cause).__name__}: {cause}", REASON_BYTES)
        super().__init__(
            f"the transaction is aborted: ROLLBACK ends it, and nothing of it takes effect. It failed with {shown}"
        )
        self.__cause__ = cause


class TransactionTooLarge(StreamError, ValueError):
    """The changes of a transaction need `size` bytes; `limit` is the option `transaction_bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the changes of the transaction need {size:,} bytes; transaction_bytes is {limit:,}: ROLLBACK, and COMMIT "
            "smaller parts, or connect with a greater one"
        )
        self.size = size
        self.limit = limit


class CopyInterrupted(StreamError):
    """COPY into `table` failed after the first `rows` rows of the files at `path` were taken; `cause` says why."""

    def __init__(self, table: str, rows: int, path: str, cause: BaseException) -> None:
        super().__init__(f"{table}: the first {rows:,} rows of {path} were taken, then: {cause}")
        self.table, self.rows, self.path, self.cause = table, rows, path, cause


class BulkLoadRefused(StreamError, ValueError):
    """A load into `table` that cannot be carried out, for `reason`. Nothing of it is left."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"bulk load into {table!r}: {reason}")
        self.table = table
        self.reason = reason


class DuplicateRows(BulkLoadRefused):
    """`count` rows have the key of another row, loaded or stored; `keys` are some of those."""

    def __init__(self, table: str, count: int, keys: Sequence[tuple]) -> None:
        self.count = count
        self.keys = tuple(keys)
        shown = ", ".join(map(repr, self.keys))
        super().__init__(table, f"{count} rows have a primary key that another row has too, such as {shown}; "
                                "on_duplicate='last' or 'first' keeps one of each")


class InvalidStatement(StatementError, ValueError):
    """A statement whose rows the table cannot hold: wrong type, NULL in a key, an expression that failed."""


class LostStatement(NamedTuple):
    """A statement that was undone, by its number in the session, and the table that it changed."""

    statement_id: int
    table: str


class KernelsChanged(StreamError):
    """The view `view` was computed by kernels of an older release, which give other results for `expressions`, so its
    stored rows could not be matched. It is rebuilt."""

    def __init__(self, view: str, expressions: Sequence[str]) -> None:
        listed = shortened(", ".join(expressions), REASON_BYTES)
        super().__init__(f"view {view!r} is of an older release, which computed {listed} otherwise: it is built anew")
        self.view = view
        self.expressions = tuple(expressions)


class ReadOnlySession(StreamError, ValueError):
    """`what` needs the session that runs the jobs of this store; this one was connected to read."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f'{what}: this session reads beside the one that runs the jobs. connect() without role="reader" takes '
            "changes if no other session runs, and stream.Inbox hands rows to one that does"
        )
        self.what = what


class CursorTaken(StreamError):
    """Another feed uses cursor `name` since, or it was dropped: this one has ended."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the cursor {name!r} was taken by another feed, or dropped: one feed uses it at a time")
        self.name = name


class CursorExpired(StreamError):
    """Cursor `name` was not used for `retention_ms`; changes can be read from `safe_epoch` on."""

    def __init__(self, name: str, retention_ms: int, safe_epoch: int) -> None:
        super().__init__(
            f"the cursor {name!r} was not used for longer than its retention of {retention_ms / 1_000:,.0f} s, and the "
            f"changes before epoch {safe_epoch} are gone: drop_cursor({name!r}), and begin again with all rows"
        )
        self.name, self.retention_ms, self.safe_epoch = name, retention_ms, safe_epoch


class StatementsLost(StreamError):
    """A recovery undid `statements`, in the order they were sent, and their tables could not accept them again."""

    def __init__(self, statements: Sequence[LostStatement]) -> None:
        self.statements = tuple(statements)
        shown = ", ".join(f"{each.statement_id} of table {each.table!r}" for each in self.statements[:SHOWN])
        more = f" and {len(self.statements) - SHOWN} more" if len(self.statements) > SHOWN else ""
        super().__init__(f"{len(self.statements)} statement(s) were lost in a recovery: {shown}{more}; send them again")


class JobFailed(StreamError):
    """The job of `job` was set aside: it keeps its rows of epoch `since`, does not change, and cannot be read as if it
    were fresh. `reason` is the error."""

    def __init__(self, job: str, since: int, reason: str) -> None:
        super().__init__(
            f"{job!r} was set aside at epoch {since}: {reason}. Remove the cause and send ALTER … RESUME, or DROP it; "
            f"db.at({since}) reads it as it was then, SHOW JOBS tells more"
        )
        self.job = job
        self.since = since
        self.reason = reason


class JobCreating(StreamError):
    """The view, index or sink `job` is being created: it has not read all existing rows of its tables yet."""

    def __init__(self, job: str) -> None:
        super().__init__(f"{job!r} is being created: SHOW JOBS shows how far it is; DROP cancels it")
        self.job = job


class InconsistentStream(StreamError):
    """A change stream violated its contract; `executor` detected it, `evidence` describes it."""

    def __init__(self, executor: str, evidence: str) -> None:
        super().__init__(f"{executor}: {evidence}")
        self.executor = executor
        self.evidence = evidence


class SourcePosition(NamedTuple):
    """The position of a source when its job failed: the beginning of its last chunk."""

    split: str
    offset: str


class JobNotRunning(StreamError):
    """A job cannot begin because its upstream `job` does not run: that was set aside, or dropped meanwhile."""

    def __init__(self, job: str) -> None:
        super().__init__(f"{job!r} does not run: SHOW JOBS says why; ALTER … RESUME lets it go on")
        self.job = job


class ProfileInterrupted(StreamError):
    """The actors of `job` were replaced while EXPLAIN ANALYZE measured them: by a recovery, an ALTER or a DROP."""

    def __init__(self, job: str) -> None:
        super().__init__(f"the actors of {job!r} were replaced while they were measured: send EXPLAIN ANALYZE again")
        self.job = job


class ActorFailed(StreamError):
    """Actor `actor_id` ended with an error, which is this error's cause; `position` is that of its source, if any."""

    def __init__(self, actor_id: int, cause: BaseException, position: SourcePosition | None = None) -> None:
        super().__init__(f"actor {actor_id} failed: {shortened(f'{type(cause).__name__}: {cause}', REASON_BYTES)}")
        self.actor_id = actor_id
        self.position = position
        self.__cause__ = cause


class BarrierTimeout(StreamError, TimeoutError):
    """The barrier that ends `epoch` was not collected in `timeout_ms`; the actors `missing` have not passed it."""

    def __init__(self, epoch: int, timeout_ms: int, missing: Iterable[int]) -> None:
        self.epoch = epoch
        self.timeout_ms = timeout_ms
        self.missing = tuple(sorted(missing))
        super().__init__(f"epoch {epoch} not collected in {timeout_ms} ms; missing actors {self.missing}")


class RecoveryFailed(StreamError):
    """Recovery gave up after `attempts` attempts; the last error is this error's cause."""

    def __init__(self, attempts: int, cause: BaseException) -> None:
        super().__init__(f"recovery failed {attempts} times, last with {type(cause).__name__}: {cause}")
        self.attempts = attempts
        self.__cause__ = cause


class ChannelClosed(StreamError):
    """The channel was closed; the error of the close, if any, is this error's cause."""


class SessionClosed(StreamError):
    """A call on a session after close()."""
