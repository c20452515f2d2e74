"""What the text before the cursor can be completed to: keywords, names of the catalog, functions and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relational.expr.aggregates import AggKind
from relational.expr.functions import ALIASES, FUNCTIONS, SET_FUNCTIONS
from stream.cli.shell.commands import PSET, SPECS, SWITCHES
from stream.cli.shell.describe import answer, rows_of
from stream.cli.shell.help import STATEMENTS
from stream.cli.shell.options import FORMATS
from stream.cli.shell.statements import is_complete
from stream.session.reader import ReaderSession

KEYWORDS = tuple(sorted({
    *(word for statement in STATEMENTS for word in statement.split()),
    "ALL", "AND", "ANALYZE", "ANY", "APPEND", "AS", "ASC", "BETWEEN", "BY", "CASCADE", "CASE", "CAST", "COLUMN",
    "CONFLICT", "CROSS", "CURSOR", "DEFAULT", "DESC", "DISTINCT", "ELSE", "END", "EXCEPT", "EXISTS", "FALSE",
    "FILTER", "FIRST", "FOR", "FROM", "FULL", "GROUP", "HAVING", "IF", "IN", "INNER", "INTERSECT", "INTERVAL",
    "INTO", "IS", "JOIN", "KEY", "LAST", "LATERAL", "LEFT", "LIKE", "LIMIT", "NOT", "NULL", "NULLS", "OFFSET", "ON",
    "ONLY", "OR", "ORDER", "OUTER", "OVER", "OVERWRITE", "PARTITION", "PRIMARY", "RENAME", "RESUME", "RETURNING",
    "RIGHT", "SEMI", "TABLES", "THEN", "TO", "TRUE", "UNION", "USING", "VIEWS", "WATERMARK", "WHEN", "WHERE",
    "WITHIN", "JOBS", "ERRORS", "SOURCES", "SINKS", "INDEXES", "FUNCTIONS", "SCHEMAS", "DATABASES", "COLUMNS",
}))
BUILT_IN = tuple(sorted({
    *(name for name in (*FUNCTIONS, *ALIASES, *SET_FUNCTIONS) if name.isidentifier()),
    *(kind.value for kind in AggKind),
}))
NAMES_FOLLOW = frozenset(("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "VIEW", "DESCRIBE", "DESC", "TRUNCATE", "SOURCE",
                          "SINK", "INDEX", "ON"))
"""Keywords after which the name of a table or view is expected; ON only where no table has been named yet."""
_PART = re.compile(r"""(?P<word>(?:[\w$.]|"[^"]*"?)+)|(?P<text>'(?:[^']|'')*'?)|.""", re.DOTALL)
_PLAIN = re.compile(r"[a-z_][a-z_0-9$]*")
_NAMED = re.compile(
    r"(?:\b(?:FROM|JOIN|INTO|UPDATE|ON)\s+|,\s*)(?P<name>(?:[\w$.]|\"[^\"]*\")+)(?:\s+(?:AS\s+)?(?P<alias>\w+))?",
    re.IGNORECASE,
)
_TABLES_BEGIN = re.compile(r"\b(?:FROM|INTO|UPDATE|ON)\b", re.IGNORECASE)
_LAST_WORD = re.compile(r"(\w+)\s+$|,\s*$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` replaces the last `length` characters before the cursor; `kind` is shown beside it."""

    text: str
    length: int
    kind: str


@dataclass(slots=True)
class CatalogNames:
    """The names that can be completed: columns by (schema, table), schemas, and user functions."""

    columns: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    kinds: dict[tuple[str, str], str] = field(default_factory=dict)
    schemas: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, session: ReaderSession) -> CatalogNames:
        """The names in the session's catalog."""
        names = cls()
        for schema, table, kind in rows_of(answer(session, "SELECT table_schema, table_name, table_type FROM "
                                                           "information_schema.tables")):
            names.kinds[schema, table] = kind.lower()
            names.columns[schema, table] = []
        for schema, table, column in rows_of(answer(session, "SELECT table_schema, table_name, column_name FROM "
                                                             "information_schema.columns")):
            names.columns.setdefault((schema, table), []).append(column)
        names.schemas = [row[0] for row in rows_of(answer(session, "SHOW SCHEMAS"))]
        names.functions = answer(session, "SHOW FUNCTIONS")["name"].to_pylist()
        return names

    def objects(self) -> list[tuple[str, str]]:
        """Tables and the like as SQL names them, and their kinds."""
        return [
            (_quoted(table) if schema == "public" else f"{_quoted(schema)}.{_quoted(table)}", kind)
            for (schema, table), kind in sorted(self.kinds.items(), key=lambda each: (each[0][0] != "public", each[0]))
        ]

    def columns_of(self, name: str) -> list[str]:
        """The columns of a table, named as in SQL."""
        schema, _, plain = name.rpartition(".")
        wanted = [part.strip('"') if part.startswith('"') else part.lower() for part in (schema or "public", plain)]
        return self.columns.get((wanted[0], wanted[1]), [])


def candidates(before: str, after: str, names: CatalogNames) -> list[Candidate]:
    """The completions of the text before the cursor, the likeliest first."""
    line = before.rpartition("\n")[2].lstrip()
    if line.startswith("\\") and is_complete(before[: len(before) - len(line)]):
        return list(_of_command(line, names))
    statement, rest = before[before.rfind(";") + 1 :], after.partition(";")[0]
    *_, last = _PART.finditer(statement) if statement else [None]
    if last is not None and last["text"] and (len(last[0]) == 1 or not last[0].endswith("'")):
        return []
    word = (last["word"] if last is not None else None) or ""
    tables = _named(statement + rest)
    qualifier, dot, start = word.rpartition(".")
    if dot:
        return _matching(start, _of_qualifier(qualifier, tables, names))
    return _matching(word, _unqualified(statement[: len(statement) - len(word)], word, tables, names))


def _unqualified(
    before: str, word: str, tables: Mapping[str, str], names: CatalogNames
) -> Iterator[tuple[str, str]]:
    last = _LAST_WORD.search(before)
    keyword = ((last[1] if last is not None else None) or "").upper()
    if keyword in NAMES_FOLLOW and (keyword != "ON" or not _named(before)):
        yield from names.objects()
        yield from ((_quoted(schema), "schema") for schema in names.schemas)
        yield from ((each, "keyword") for each in _cased(("IF", "NOT", "EXISTS"), word))
        return
    for name in dict.fromkeys(tables.values()):
        yield from ((_quoted(column), "column") for column in names.columns_of(name))
    if not word:
        return
    yield from ((alias, "alias") for alias, name in tables.items() if alias != name)
    yield from ((each, "keyword") for each in _cased(KEYWORDS, word))
    yield from ((each, "function") for each in names.functions)
    yield from ((each, "function") for each in BUILT_IN)
    yield from names.objects()


def _of_qualifier(qualifier: str, tables: Mapping[str, str], names: CatalogNames) -> Iterator[tuple[str, str]]:
    yield from ((_quoted(column), "column") for column in names.columns_of(tables.get(qualifier.lower(), qualifier)))
    plain = qualifier.strip('"')
    yield from ((_quoted(table), kind) for (schema, table), kind in names.kinds.items() if schema == plain)


def _named(statement: str) -> dict[str, str]:
    """The tables that a statement names, by their aliases or names."""
    begin = _TABLES_BEGIN.search(statement)
    found = {}
    for match in _NAMED.finditer(statement, len(statement) if begin is None else begin.start()):
        alias = match["alias"]
        is_alias = alias is not None and alias.upper() not in KEYWORDS
        found[alias.lower() if is_alias else match["name"].rpartition(".")[2].lower()] = match["name"]
    return found


def _of_command(line: str, names: CatalogNames) -> Iterator[Candidate]:
    parts = re.split(r"\s+", line)
    if len(parts) == 1:
        yield from (Candidate(name, len(line), spec.help) for name, spec in SPECS.items() if name.startswith(line))
        return
    command, word = parts[0], parts[-1]
    if command in ("\\i", "\\o"):
        yield from _paths(word)
    elif command.startswith("\\d"):
        yield from _matching(word, names.objects())
    elif command == "\\h":
        rest = line[len(command) :].lstrip()
        yield from _matching(rest, [(statement, "statement") for statement in _cased(STATEMENTS, rest)])
    elif command == "\\pset":
        values = PSET if len(parts) == 2 else FORMATS if parts[1] == "format" else ("on", "off")
        yield from _matching(word, [(value, "option") for value in values])
    elif command in ("\\x", "\\timing"):
        yield from _matching(word, [(value, "option") for value in SWITCHES])


def _paths(word: str) -> Iterator[Candidate]:
    whole = Path(word or ".").expanduser()
    directory, start = (whole, "") if not word or word.endswith("/") else (whole.parent, whole.name)
    try:
        found = sorted(path for path in directory.iterdir() if path.name.startswith(start))
    except OSError:
        return
    for path in found:
        yield Candidate(path.name + ("/" if path.is_dir() else ""), len(start), "file")


def _matching(start: str, found: Iterable[tuple[str, str]]) -> list[Candidate]:
    kinds: dict[str, str] = {}
    for text, kind in found:
        if text.lower().startswith(start.lower()):
            kinds.setdefault(text, kind)
    return [Candidate(text, len(start), kind) for text, kind in kinds.items()]


def _cased(words: Iterable[str], word: str) -> Sequence[str]:
    """Keywords in the case of the word that is typed."""
    return [each.lower() for each in words] if word and word.islower() else list(words)


def _quoted(name: str) -> str:
    """A name as SQL reads it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
