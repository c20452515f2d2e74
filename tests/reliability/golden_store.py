"""The frame of the tests of golden stores: a store that a release wrote goes on with today's code.

`tests/golden_stores/<kind>-<catalog format>` has the store after the first step of its kind, and `answers.json`: what
the release that wrote it answered after each step. A store is written once for each format, by

    HUMMOCK_WRITE_GOLDEN_STORE=<kind>-<format> pytest tests/reliability/test_golden_<kind>.py -k written
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import stream

GOLDEN = Path(__file__).resolve().parents[1] / "golden_stores"
WANTED = os.environ.get("HUMMOCK_WRITE_GOLDEN_STORE", "")
NEVER_MS = 3_600_000


class GoldenStore:
    """Stores of one `kind`: the statements of each step, and what `answers` says after it, as JSON."""

    def __init__(self, kind: str, steps: Sequence[Sequence[str]], answers: Callable[[stream.Session], Any],
                 **options: Any) -> None:
        self._steps, self._answers = steps, answers
        self._options = {"barrier_interval_ms": NEVER_MS, **options}
        self.formats = sorted(path.name for path in GOLDEN.glob(f"{kind}-*") if path.name[len(kind) + 1:].isdigit())
        self.is_wanted = WANTED.startswith(f"{kind}-")

    def opened(self, directory: Path) -> stream.Session:
        return stream.connect(f"file://{directory}", create=True, **self._options)

    def played(self, directory: Path, first: int = 0, copy_to: Path | None = None) -> list[Any]:
        """The answers after each step from `first` on; before it those of the store as it is. Each step has a session
        of its own, so that all state is read back from the store. `copy_to`: for the store after the first step."""
        found = []
        for number in range(max(first - 1, 0), len(self._steps)):
            with self.opened(directory) as session:
                if number >= first:
                    play(session, self._steps[number])
                found.append(json.loads(json.dumps(self._answers(session))))
            if copy_to is not None and number == 0:
                shutil.copytree(directory, copy_to, ignore=shutil.ignore_patterns(".temporary"))
        return found

    def check(self, name: str, directory: Path) -> None:
        """The store `name` goes on in `directory` as it did."""
        shutil.copytree(GOLDEN / name / "store", directory)
        for number, (answer, known) in enumerate(zip(self.played(directory, 1), known_answers(name), strict=True)):
            assert answer == known, f"step {number}"

    def plan(self, directory: Path, view: str) -> dict[str, Any]:
        """The stored plan of a view."""
        with self.opened(directory) as session:
            record = session._playground.catalog.snapshot.job_record(session.table(view).table.id)
        assert record is not None
        return json.loads(record.plan)

    def write(self, directory: Path) -> None:
        """Writes the golden store that is wanted, from one in `directory`."""
        target = GOLDEN / WANTED
        assert not target.exists(), "a golden store is never rewritten"
        found = self.played(directory, copy_to=target / "store")
        (target / "answers.json").write_text(json.dumps(found, indent=1) + "\n")


def known_answers(name: str) -> list[Any]:
    return json.loads((GOLDEN / name / "answers.json").read_text())


def play(session: stream.Session, step: Iterable[str]) -> None:
    """Executes the statements of one step, then flushes."""
    for statement in step:
        session.sql(statement)
    session.flush()


def rows_of(session: stream.Session, names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Name of a table or view -> columns with their types, and sorted rows as text."""
    found = {}
    for name in names:
        table = session.sql(f"SELECT * FROM {name}").to_arrow()
        columns = [f"{field.name} {field.type}" for field in table.schema]
        rows = sorted(" | ".join(map(str, row.values())) for row in table.to_pylist())
        found[name] = {"columns": columns, "rows": rows}
    return found


def rows_and_tables(session: stream.Session, names: Iterable[str]) -> dict[str, Any]:
    """The rows of each view, and the state tables of its plan."""
    catalog = session._playground.catalog
    tables = {name: [each.name for each in catalog.internal_tables(session.table(name).table.id)] for name in names}
    return {"rows": rows_of(session, names), "tables": tables}
