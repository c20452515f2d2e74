"""SQL in the cells of IPython and Jupyter: the magics `%sql` and `%%sql`.

    %load_ext stream
    %sql shop --create                  connects to a store; --role reader, --take-over and --create are as in `connect`
    %sql db                             takes the session of a variable
    %sql SELECT * FROM revenue          one statement, whose result is the value of the line
    %%sql                               a cell of statements, which shows the result of the last one
    %%sql db rows <<                    in the session of a variable; the variable `rows` gets the result
    %sql --close                        closes the session, if the magic has opened it

A store is opened once; a cell that connects to it again goes on with that session. `:name` in a query or data change is
the value of a variable, and a FROM names frames. The rows of a query are read when it is executed. Errors show no more
than their message. Sessions of variables are left to the program; others end with it, or with `%unload_ext stream`."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hummock.base.extras import require
from hummock.errors import HummockError, StoreNotFound, WriterRunning
from hummock.object_store.url import store_url
from relational.errors import RelationalError
from relational.relation import Relation
from relational.result import ResultSet
from relational.sql.binder import begins_statement
from relational.sql.lexer import Piece, statements
from stream.errors import StreamError
from stream.session.connect import ROLES, connect
from stream.session.reader import ReaderSession

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME = "sql"
WORD = re.compile(r"\s*([^\W\d]\w*)(?=\s|$)")
TARGET = re.compile(r"(?P<before>[^\n]*?)(?<!\S)(?P<name>[^\W\d]\w*)\s*<<(?P<after>.*)", re.DOTALL)
OF_DDL = ("CREATE", "ALTER", "DROP", "COMMENT")
"""Statements whose result, a handle of what there is now, is not what a cell asks for."""
HINTS: Mapping[type[BaseException], tuple[str, ...]] = {
    StoreNotFound: ("with --create the store is made",),
    WriterRunning: ("with --role reader it is read beside that process; with --take-over that process ends",),
}
"""What the magic offers where an error says what Python does."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext stream`. ExtraMissing."""
    require("IPython", f"%{NAME}")
    from IPython.core.magic import no_var_expand

    unload_ipython_extension(shell)
    magic = SqlMagic(shell.user_ns)

    def sql(line: str, cell: str | None = None) -> Any:
        return magic.run(line, cell)

    function: Any = sql
    function.__doc__, function.close = __doc__, magic.close
    register: Any = shell.register_magic_function
    register(no_var_expand(function), magic_kind="line_cell", magic_name=NAME)  # braces and dollars are SQL's


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext stream`: closes the sessions that the magic has opened."""
    for functions in shell.magics_manager.magics.values():
        magic = functions.get(NAME)
        if hasattr(magic, "close"):
            magic.close()
            del functions[NAME]


class Request(NamedTuple):
    """What a line, with a cell, asks for. `connection`: the words that say where to connect; `target`: the variable
    that gets the result."""

    session: ReaderSession | None
    connection: list[str]
    target: str | None
    text: str


class Parameters(Mapping[str, object]):
    """Values of the parameters of one statement: it finds all variables, and contains those that were asked for."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names, self._asked = names, dict[str, object]()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> object:
        return self._asked.setdefault(name, self._names[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._asked)

    def __len__(self) -> int:
        return len(self._asked)


class SqlMagic:
    """`names`: the variables of the shell."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._session: ReaderSession | None = None
        self._opened: dict[tuple[str, str], ReaderSession] = {}  # by URL and role

    def run(self, line: str, cell: str | None) -> Any:
        """The value of a line or cell. Errors of the session are raised, and IPython shows no more than their message.
        """
        try:
            return self._run(self._request(line, cell))
        except (HummockError, RelationalError, StreamError) as error:
            message = "\n".join((f"{type(error).__name__}: {error}", *HINTS.get(type(error), ())))
            error._render_traceback_ = lambda: message.split("\n")  # type: ignore[union-attr]
            raise

    def close(self) -> None:
        """Closes the sessions that were opened here."""
        self._session = None
        while self._opened:
            self._opened.popitem()[1].close()

    def _request(self, line: str, cell: str | None) -> Request:
        """Reads a line: [variable of a session | where to connect] [variable <<] [statement]."""
        session, rest, connection, target = None, line, "", None
        word = WORD.match(line)
        if word is not None and isinstance(self._names.get(word[1]), ReaderSession):
            session, rest = self._names[word[1]], line[word.end():]
        if not begins_statement(rest):
            found = TARGET.fullmatch(rest)
            if found is not None:
                connection, target, rest = found["before"], found["name"], found["after"]
            else:
                connection, rest = rest, ""
        if session is not None and connection.strip():
            raise _usage(f"{connection.strip()!r} is no statement")
        try:
            words = shlex.split(connection)
        except ValueError as error:
            raise _usage(f"{connection.strip()!r}: {error}") from error
        return Request(session, words, target, rest if cell is None else f"{rest}\n{cell}" if rest.strip() else cell)

    def _run(self, request: Request) -> Any:
        if request.connection == ["--close"]:
            return self._close_current()
        if request.session is not None:
            self._session = request.session
        elif request.connection:
            self._session = self._connected(request.connection)
        elif self._session is None:
            raise _usage(f"there is no session: %{NAME} URL connects to a store{self._sessions_of_variables()}")
        session = self._session
        assert session is not None
        if not Piece(request.text, 0, len(request.text)).is_empty:
            answer = self._answer(session, request.text)
        elif request.target is None:
            return session
        else:
            raise _usage(f"{request.target} << is followed by a statement")
        if request.target is None:
            return answer
        self._names[request.target] = answer
        return None

    def _sessions_of_variables(self) -> str:
        names = sorted(name for name, value in self._names.items()
                       if isinstance(value, ReaderSession) and not name.startswith("_"))
        return f"; %{NAME} {names[0]} takes that of a variable ({', '.join(names)})" if names else ""

    def _connected(self, words: list[str]) -> ReaderSession:
        """The session on a store, which is opened unless it is open already."""
        given = _ARGUMENTS.parse_args(words)
        key = store_url(given.url), given.role
        known = self._opened.get(key)
        if known is not None and not known.is_closed:
            return known
        if given.role == "reader":
            changes = [name for name in ("create", "take_over") if getattr(given, name)]
            if changes:
                raise _usage(f"a reader changes nothing: leave --{changes[0].replace('_', '-')} out")
            session: ReaderSession = connect(given.url, role="reader")
        else:
            session = connect(given.url, create=given.create, take_over=given.take_over)
        self._opened[key] = session
        return session

    def _close_current(self) -> None:
        """Closes the session that is in use, if it was opened here."""
        session, self._session = self._session, None
        for key in [key for key, opened in self._opened.items() if opened is session]:
            self._opened.pop(key).close()

    def _answer(self, session: ReaderSession, text: str) -> Any:
        """The result of the last statement of a text, of a query its rows."""
        answer: Any = None
        for piece in statements(text):
            before = "\n" * text.count("\n", 0, piece.start)  # errors name the line of the cell
            answer = session.sql(before + piece.source, Parameters(self._names), frames=self._names)
            if piece.words(1) and piece.words(1)[0] in OF_DDL:
                answer = None
        return ResultSet(answer.to_arrow()) if isinstance(answer, Relation) else answer


def _usage(reason: str) -> Exception:
    """What IPython shows as a line."""
    from IPython.core.error import UsageError

    error: Exception = UsageError(reason)
    return error


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _usage(f"{message}; %{NAME} URL [--role writer | reader] [--create] [--take-over], or a statement")


_ARGUMENTS = _Arguments(prog=f"%{NAME}", add_help=False, allow_abbrev=False)
_ARGUMENTS.add_argument("url")
_ARGUMENTS.add_argument("--role", choices=ROLES, default=ROLES[0])
_ARGUMENTS.add_argument("--create", action="store_true")
_ARGUMENTS.add_argument("--take-over", action="store_true")
