"""A shell over a store in memory, whose output and errors are kept."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest

import stream
from stream.cli.shell.options import OutputOptions
from stream.cli.shell.output import Output
from stream.cli.shell.shell import Shell


class Terminal(io.StringIO):
    """Text that is written to a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Console:
    """A shell, and what it has written."""

    shell: Shell
    out: io.StringIO
    errors: io.StringIO
    slept: list[float] = field(default_factory=list)

    def run(self, text: str) -> str:
        """What the shell writes for some lines of input: the results, then the errors."""
        self.shell.run_lines(text.splitlines())
        written = self.out.getvalue() + self.errors.getvalue()
        for each in (self.out, self.errors):
            each.seek(0)
            each.truncate()
        return written


def new_console(session: stream.Session, *, out: io.StringIO | None = None, format: str | None = "table",
                is_interactive: bool = False) -> Console:
    out, errors, slept = out or io.StringIO(), io.StringIO(), []
    output = Output(out, OutputOptions(format), is_interactive=is_interactive)
    shell = Shell(session, "memory://", output, goes_on=True, errors=errors, clock=lambda: 0.0, sleep=slept.append)
    return Console(shell, out, errors, slept)


@pytest.fixture(scope="module")
def shop():
    """A session with a few objects, which tests do not change."""
    with stream.connect("memory://") as db:
        for statement in (
            "CREATE SCHEMA old",
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, region VARCHAR NOT NULL DEFAULT 'EUROPE', amount NUMERIC)",
            "CREATE TABLE old.orders (id BIGINT)",
            'CREATE TABLE "Odd name" ("A b" INT)',
            "CREATE MATERIALIZED VIEW totals AS SELECT region, SUM(amount) AS total FROM orders GROUP BY region",
            "CREATE VIEW large AS SELECT * FROM orders WHERE amount > 100",
            "CREATE INDEX by_region ON orders (region)",
            "CREATE SOURCE ticks (n BIGINT) WITH (connector = 'datagen')",
            "INSERT INTO orders VALUES (1, 'ASIA', 10.5), (2, 'EUROPE', 200)",
            "FLUSH",
        ):
            db.sql(statement)
        yield db


@pytest.fixture
def console(shop):
    return new_console(shop)


@pytest.fixture
def csv(shop):
    return new_console(shop, format="csv")
