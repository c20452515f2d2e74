"""Errors about rows, types, text and catalogs.

    RelationalError
    ├── SourceTextError (ValueError)      points at a span of SQL text
    │   ├── ParseError                    the text is not SQL that we understand
    │   └── BindError                     the text is SQL, but a name or a type in it is invalid
    ├── EncodingError (ValueError)        bytes that are not an encoding, or a value without one
    │   └── InvalidValue                  an external value that its column cannot represent
    ├── EvaluationError (ArithmeticError) no value for a row: division by zero, overflow, bad cast
    │   └── FunctionFailed                a user function raised, or answered otherwise than it was declared
    ├── QueryTooLarge (RuntimeError)      a query exceeds one of its limits
    ├── SpillFailed (RuntimeError)        rows of a query could not be written to a temporary file, or read from it
    ├── ConsistencyError (RuntimeError)   a change that contradicts the state it is applied to
    ├── RequestRefused (ValueError)       rows for the session that serves the store; it wrote none of them
    │   ├── BatchGap                      batches of a streaming writer that never arrived
    │   └── CheckpointChanged             a streaming writer of that name has another checkpoint
    ├── ReadRefused (ValueError)          a read of the Spark data source that cannot be planned
    ├── RequestUnanswered (TimeoutError)  the outcome is unknown: no session answered in time
    └── CatalogError
        ├── NotFound (LookupError)
        ├── Duplicate (ValueError)
        ├── DependencyError (RuntimeError)
        └── FunctionsNotAllowed (PermissionError)

Each error carries its evidence as attributes, so that a caller need not read the message.
"""

from __future__ import annotations

from collections.abc import Sequence

MESSAGE_BYTES = 1_200
LINE_CHARACTERS = 120


def shortened(text: str, limit: int = 100) -> str:
    """`text`, its middle omitted if it has more than `limit` bytes in UTF-8."""
    if len(text) <= limit // 4 or (len(text) <= limit and len(text.encode("utf-8", "replace")) <= limit):
        return text
    half = (limit - 3) // (2 if text.isascii() else 8)
    return f"{text[:half]}…{text[-half:]}"


class RelationalError(Exception):
    """Any error of this package."""


class SourceTextError(RelationalError, ValueError):
    """An error at a span of SQL text; `str()` shows the line with carets below the span.

    `text` is missing if the tree was built by the fluent API; then only the message is shown. A long message or line is
    shortened around the span, to at most 2 kB. `start` and `end` are character offsets into `text`, half open.
    """

    def __init__(
        self, message: str, *, text: str | None = None, start: int | None = None, end: int | None = None
    ):
        self.message, self.text, self.start, self.end = shortened(message, MESSAGE_BYTES), text, start, end
        super().__init__(self.message)

    def __str__(self) -> str:
        if self.text is None or self.start is None:
            return self.message
        start = min(max(self.start, 0), len(self.text))
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)].replace("\t", " ")
        column = start - line_start
        first = max(0, min(column - LINE_CHARACTERS // 3, len(line) - LINE_CHARACTERS))
        is_cut = first > 0 or len(line) > LINE_CHARACTERS
        line = line[first : first + LINE_CHARACTERS] if is_cut else line
        column -= first
        width = max(1, min((self.end or start + 1) - start, max(1, len(line) - column)))
        number = self.text.count("\n", 0, start) + 1
        gutter = f"{number} | "
        return f"{self.message}\n{gutter}{line}\n{' ' * (len(gutter) + column)}{'^' * width}"


class ParseError(SourceTextError):
    """The text is not SQL that this package supports."""


class BindError(SourceTextError):
    """A name, a type or a combination of them is invalid here."""


class EncodingError(RelationalError, ValueError):
    """Bytes that no encoder wrote, or a value that the format cannot represent.

    `row` is the row in the batch, `column` the position of the column in the encoder, `offset` the byte inside the
    row's bytes; each None if it does not apply.
    """

    def __init__(
        self, reason: str, *, row: int | None = None, column: int | None = None, offset: int | None = None
    ):
        self.reason, self.row, self.column, self.offset = reason, row, column, offset
        parts = (("row", row), ("column", column), ("byte", offset))
        where = ", ".join(f"{name} {value}" for name, value in parts if value is not None)
        super().__init__(f"{reason} ({where})" if where else reason)


class InvalidValue(EncodingError):
    """An external value that its column cannot represent. `column_name` is the column's name, `row` the index from 0
    among the rows passed by the caller; None if unknown, or no row in particular.
    """

    def __init__(self, reason: str, *, column_name: str | None = None, row: int | None = None):
        super().__init__(reason, row=row)
        self.column_name = column_name
        parts = ([] if column_name is None else [f"column {shortened(column_name)!r}"]) + (
            [] if row is None else [f"row {row}"]
        )
        self.args = (f"{', '.join(parts)}: {reason}" if parts else reason,)

    def named(self, column_name: str) -> InvalidValue:
        """The same error with the column name, which the code that raised it did not know."""
        return InvalidValue(self.reason, column_name=column_name, row=self.row)


class DamagedRow(EncodingError):
    """Stored bytes of `table` that do not decode to a row; `key` are the values of its primary key, None if those
    cannot be decoded either, `column_name` is the undecodable column, None if unknown.
    """

    def __init__(self, table: str, key: tuple[object, ...] | None, column_name: str | None, reason: str):
        super().__init__(reason)
        self.table, self.key, self.column_name = table, key, column_name
        parts = [f"table {shortened(table)!r}"]
        if key is not None:
            parts.append(f"the row with the key {shortened(', '.join(map(repr, key)))}")
        if column_name is not None:
            parts.append(f"column {shortened(column_name)!r}")
        self.args = (f"{', '.join(parts)}: the stored bytes are damaged: {reason}",)

    def __reduce__(self) -> tuple[object, ...]:
        return DamagedRow, (self.table, self.key, self.column_name, self.reason)


class EvaluationError(RelationalError, ArithmeticError):
    """An expression has no value for a row; `row` is its position in the chunk if known."""

    def __init__(self, message: str, *, row: int | None = None):
        self.row = row
        super().__init__(message if row is None else f"{message} (row {row})")


class FunctionFailed(EvaluationError):
    """The user function `function` has no result for rows of a query or data change, for `reason`."""

    def __init__(self, function: str, reason: str):
        self.function, self.reason = function, reason
        super().__init__(f"function {function!r}: {shortened(reason, MESSAGE_BYTES)}")

    def __reduce__(self) -> tuple[object, ...]:
        return FunctionFailed, (self.function, self.reason)


class QueryTooLarge(RelationalError, RuntimeError):
    """`what` of a query exceeds the `limit` that an `option` of the session sets."""

    def __init__(self, what: str, option: str, limit: int):
        self.what, self.option, self.limit = what, option, limit
        super().__init__(f"{what} beyond the limit of {limit:,}, which {option} sets")

    def __reduce__(self) -> tuple[object, ...]:
        return QueryTooLarge, (self.what, self.option, self.limit)


class SpillFailed(RelationalError, RuntimeError):
    """Rows that a query has no memory for could not be written to a temporary file in `directory`, or read from it, for
    `reason`."""

    def __init__(self, directory: str, reason: str):
        self.directory, self.reason = directory, reason
        super().__init__(
            f"a temporary file of a query in {directory!r}: {reason}; query_directory sets another directory, "
            "query_memory_bytes how much is held in memory"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SpillFailed, (self.directory, self.reason)


class ConsistencyError(RelationalError, RuntimeError):
    """A change contradicts the state: a second insert of a key, a delete of an absent one."""

    def __init__(self, message: str, *, table: str | None = None, key: object = None):
        self.table, self.key = table, key
        named = f"table {table!r}: {message}" if table is not None else message
        super().__init__(f"{named}, key {key!r}" if key is not None else named)


class RequestRefused(RelationalError, ValueError):
    """Rows for table `table` that the serving session refused, for `reason`; it wrote none of them. `kind` is the name
    of its error's class.
    """

    def __init__(self, table: str, kind: str, reason: str):
        self.table, self.kind, self.reason = table, kind, reason
        super().__init__(shortened(f"rows for table {table!r} were refused: {kind}: {reason}", MESSAGE_BYTES))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.table, self.kind, self.reason)


class BatchGap(RequestRefused):
    """Batch `batch_id` of streaming writer `writer`, where the newest one in the table is batch `last`."""

    def __init__(self, table: str, writer: str, batch_id: int, last: int):
        self.writer, self.batch_id, self.last = writer, batch_id, last
        super().__init__(table, "BatchGap",
                         f"batch {batch_id} of writer {writer!r} came after batch {last}, so the rows of the batches "
                         f"between are missing. Send batch {last + 1} next: each batch of a query is sent, even an "
                         "empty one. If a batch was left out on purpose, go on under another writer name")

    def __reduce__(self) -> tuple[object, ...]:
        return BatchGap, (self.table, self.writer, self.batch_id, self.last)


class CheckpointChanged(RequestRefused):
    """A batch of streaming writer `writer` whose checkpoint has the id `checkpoint`, where the table has the batches up
    to `last` of checkpoint `known`.
    """

    def __init__(self, table: str, writer: str, checkpoint: str, known: str, last: int):
        self.writer, self.checkpoint, self.known, self.last = writer, checkpoint, known, last
        super().__init__(table, "CheckpointChanged",
                         f"writer {writer!r} has checkpoint {shortened(checkpoint)!r}, while the table holds its "
                         f"batches up to {last} of checkpoint {shortened(known)!r}. If that checkpoint was deleted or "
                         "replaced, the query reads its source from the start, and rows that are in the table would be "
                         "written twice: restore the checkpoint; or begin with another writer name, after deleting the "
                         "rows that will come again, or at the position in the source that follows them")

    def __reduce__(self) -> tuple[object, ...]:
        return CheckpointChanged, (self.table, self.writer, self.checkpoint, self.known, self.last)


class ReadRefused(RelationalError, ValueError):
    """A read of the Spark data source that its driver cannot plan, with the error there."""


class RequestUnanswered(RelationalError, TimeoutError):
    """No session answered request `request_id` within `seconds`. It stays open: a session may still carry it out."""

    def __init__(self, request_id: str, seconds: float):
        self.request_id, self.seconds = request_id, seconds
        super().__init__(f"no session answered request {request_id} in {seconds:g} s. It stays open, and is carried "
                         "out once a session serves the store: wait for it again, do not send its rows anew, unless as "
                         "the same batch of the same writer")

    def __reduce__(self) -> tuple[object, ...]:
        return RequestUnanswered, (self.request_id, self.seconds)


class CatalogError(RelationalError):
    """A statement about catalog objects fails; `name` is the object concerned."""

    def __init__(self, message: str, *, name: str | None = None):
        self.name = name
        super().__init__(shortened(message, MESSAGE_BYTES))


class NotFound(CatalogError, LookupError):
    """No object of that name or id."""


class Duplicate(CatalogError, ValueError):
    """The name is taken."""


class DependencyError(CatalogError, RuntimeError):
    """Other objects still read this one; `dependents` names them."""

    def __init__(self, message: str, *, name: str | None = None, dependents: Sequence[str] = ()):
        self.dependents = tuple(dependents)
        super().__init__(message, name=name)


class FunctionsNotAllowed(CatalogError, PermissionError):
    """The Python text of stored functions would run in a session that was opened without `allow_user_functions`."""

    def __init__(self, what: str, *, name: str | None = None):
        super().__init__(f"{what} Python code that the store holds, with all rights of this process. If you trust "
                         "everybody who can write the store, open it with allow_user_functions=True, or a command with "
                         "--allow-user-functions", name=name)
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        return FunctionsNotAllowed, (self.what,)
