"""A small runner of sqllogictest files (`*.slt`).

    statement ok                 the statement succeeds
    statement error <regex>      it fails, and the message matches
    statement count <n>          it affects n rows
    query [rowsort]              the rows after `----`, one line each, values separated by spaces
    flush                        earlier statements are visible from here on
    restart                      the engine is closed and opened again
    only <engine> | skip <engine>      applies to the next record

A record ends at an empty line; `#` begins a comment line. NULL is `NULL`, an empty string `(empty)`, a
boolean `t` or `f`; trailing zeros of a NUMERIC are not shown. The engine under test and DuckDB run the same
files, so that the expected rows are verified independently.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Protocol


class Engine(Protocol):
    """The engine that the runner drives."""

    name: str

    def execute(self, sql: str) -> int | None:
        """Run a statement; return the number of affected rows if known."""

    def query(self, sql: str) -> Sequence[Sequence[object]]:
        """Rows of a query."""

    def flush(self) -> None: ...

    def restart(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a file, beginning at `line`."""

    line: int
    words: tuple[str, ...]
    sql: str = ""
    expected: tuple[str, ...] = ()
    condition: tuple[str, str] | None = None

    def applies_to(self, engine: str) -> bool:
        if self.condition is None:
            return True
        verb, named = self.condition
        return (named == engine) == (verb == "only")


def parse(path: Path) -> Iterator[Record]:
    """All records of a file; ValueError names the line of an unknown record."""
    lines = path.read_text().split("\n")
    at, condition = 0, None
    while at < len(lines):
        words = tuple(lines[at].split())
        if not words or words[0].startswith("#"):
            at += 1
        elif words[0] in ("only", "skip"):
            condition, at = (words[0], words[1]), at + 1
        elif words[0] in ("flush", "restart"):
            yield Record(at + 1, words, condition=condition)
            condition, at = None, at + 1
        elif words[0] in ("statement", "query"):
            end = next((index for index in range(at, len(lines)) if not lines[index].strip()), len(lines))
            body = lines[at + 1 : end]
            cut = body.index("----") if "----" in body else len(body)
            yield Record(at + 1, words, "\n".join(body[:cut]), tuple(body[cut + 1 :]), condition)
            condition, at = None, end
        else:
            raise ValueError(f"{path.name}:{at + 1}: {lines[at]!r} begins no record")


def run(path: Path, engine: Engine) -> int:
    """Run all records that apply to `engine` and return their number; AssertionError names file and line."""
    done = 0
    for record in parse(path):
        if not record.applies_to(engine.name):
            continue
        location = f"{path.name}:{record.line}"
        try:
            _run(record, engine)
        except AssertionError as error:
            raise AssertionError(f"{location}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{location}: {type(error).__name__}: {error}\n{record.sql}") from error
        done += 1
    return done


def _run(record: Record, engine: Engine) -> None:
    match record.words:
        case ("flush",):
            engine.flush()
        case ("restart",):
            engine.restart()
        case ("statement", "ok"):
            engine.execute(record.sql)
        case ("statement", "count", count):
            affected = engine.execute(record.sql)
            assert affected == int(count), f"{affected} rows were affected, not {count}\n{record.sql}"
        case ("statement", "error", *pattern):
            _expect_error(record, engine, " ".join(pattern))
        case ("query", *flags):
            shown = [" ".join(map(show, row)) for row in engine.query(record.sql)]
            wanted = list(record.expected)
            if "rowsort" in flags:
                shown, wanted = sorted(shown), sorted(wanted)
            assert shown == wanted, f"{record.sql}\nexpected {wanted}\ngot      {shown}"
        case _:
            raise ValueError(f"record {' '.join(record.words)!r} is not understood")


def _expect_error(record: Record, engine: Engine, pattern: str) -> None:
    try:
        engine.execute(record.sql)
    except Exception as error:
        text = str(error)
        assert engine.name == "duckdb" or re.search(pattern, text), f"{text!r} does not match {pattern!r}"
    else:
        raise AssertionError(f"no error\n{record.sql}")


def show(value: object) -> str:
    """A value in the notation of the files."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return (text.rstrip("0").rstrip(".") or "0") if "." in text else text
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(sep=" ") + ("Z" if value.tzinfo else "")
    return str(value) if value != "" else "(empty)"
