"""The magics %sql and %%sql, in a shell of IPython in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stream
from relational import ResultSet
from relational.errors import BindError
from tests.support.worlds.timed_session import NEVER_MS

interactive = pytest.importorskip("IPython.core.interactiveshell", reason="the extra notebook is not installed")
Config = pytest.importorskip("traitlets.config").Config


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])    # which the shell replaces by its own
    shell = interactive.InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.colors = "nocolor"
    shell.run_line_magic("load_ext", "stream")
    yield shell
    shell.run_line_magic("unload_ext", "stream")
    shell.reset(new_session=True)
    interactive.InteractiveShell.clear_instance()


def value(shell: Any, cell: str) -> Any:
    """The result of a cell, which has no error."""
    found = shell.run_cell(cell)
    assert found.success, found.error_in_exec
    return found.result


def error(shell: Any, cell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a cell with an error shows."""
    capsys.readouterr()
    assert not shell.run_cell(cell).success
    shown = capsys.readouterr()
    return (shown.out + shown.err).strip()


def test_a_cell_runs_its_statements_and_gives_the_rows_of_the_last(shell: Any) -> None:
    session = value(shell, "%sql memory://")
    assert isinstance(session, stream.Session)
    found = value(shell, """%%sql
CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR);
INSERT INTO t VALUES (1, 'a;b'), (2, NULL);
FLUSH;
-- the rows
SELECT * FROM t ORDER BY k;
""")
    assert isinstance(found, ResultSet) and found.fetchall() == [(1, "a;b"), (2, None)]
    assert "a;b</td>" in shell.display_formatter.format(found)[0]["text/html"]
    value(shell, "%sql INSERT INTO t VALUES (3, 'c'); FLUSH")
    assert len(found) == 2                                        # as they were when the cell ran
    assert value(shell, "%sql UPDATE t SET v = 'd' WHERE k > 1") == 2
    assert value(shell, "%sql CREATE VIEW w AS SELECT k FROM t") is None
    assert value(shell, "%sql SHOW VIEWS")["name"].to_pylist() == ["w"]
    assert value(shell, "%sql (SELECT 1 << 2 AS n)").fetchall() == [(4,)]


def test_results_go_to_variables(shell: Any) -> None:
    value(shell, "%sql memory://")
    assert value(shell, "rows = %sql SELECT 1 AS a\nrows.fetchone()") == (1,)
    assert value(shell, "%sql found << SELECT 2 AS a") is None
    assert value(shell, "%%sql again <<\nSELECT a + 1 FROM found") is None
    assert value(shell, "%%sql memory:// third<<SELECT 5\nAS a") is None
    assert [shell.user_ns[name].fetchall() for name in ("found", "again", "third")] == [[(2,)], [(3,)], [(5,)]]


def test_variables_are_parameters_and_relations(shell: Any) -> None:
    shell.user_ns |= {"least": 2, "name": "it's {least} $least :least", "df": pd.DataFrame({"a": [1, 2, 3]})}
    value(shell, "%sql memory://")
    assert value(shell, "%sql SELECT a, :name AS b, '$name {least}' AS c FROM df WHERE a > :least").fetchall() == [
        (3, "it's {least} $least :least", "$name {least}")]
    value(shell, "%sql CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR)")
    assert value(shell, "%%sql\nINSERT INTO t VALUES (:least, :name), (9, ':x');\nFLUSH") is None
    assert value(shell, "%sql SELECT k::BIGINT, v FROM t WHERE k = :least").fetchall() == [(2, shell.user_ns["name"])]
    assert value(shell, "%sql DELETE FROM t WHERE k IN (SELECT a FROM df WHERE a = :least)") == 1
    shell.user_ns["least"] = 0
    assert value(shell, "%sql SELECT count(*) FROM df WHERE a > :least").fetchone() == (3,)


def test_sessions_of_variables_are_used_and_left_open(shell: Any) -> None:
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as db, stream.connect("memory://") as other:
        db.sql("CREATE TABLE of_db (k INT)")
        shell.user_ns |= {"db": db, "other": other}
        assert value(shell, "%sql db") is db
        assert value(shell, "%sql SHOW TABLES")["name"].to_pylist() == ["of_db"]
        assert value(shell, "%%sql other rows <<\nSELECT count(*) FROM (VALUES (1), (2)) AS v (k)") is None
        assert value(shell, "%sql other SHOW TABLES").num_rows == 0
        value(shell, "%sql db")
        value(shell, "%sql --close")
        assert not db.is_closed and not other.is_closed


def test_a_store_is_opened_once_and_by_readers_beside_it(shell: Any, tmp_path: Path) -> None:
    writer = value(shell, "%sql shop --create")
    value(shell, "%sql CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
    assert value(shell, "%sql shop --create") is writer
    reader = value(shell, "%sql 'shop' --role reader")
    assert type(reader) is stream.ReaderSession
    assert value(shell, "%sql SELECT k FROM t").fetchall() == [(1,)]
    assert value(shell, f"%sql {tmp_path}/shop") is writer
    value(shell, "%sql --close")
    assert writer.is_closed and not reader.is_closed
    assert value(shell, "%sql shop") is not writer
    shell.run_line_magic("reload_ext", "stream")
    assert reader.is_closed


def test_errors_are_a_message_at_the_line_of_the_cell(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert error(shell, "%sql SELECT 1", capsys) == "UsageError: there is no session: %sql URL connects to a store"
    shell.user_ns["db"] = value(shell, "%sql memory://")
    caught = error(shell, "%%sql\nCREATE TABLE t (k INT);\nSELECT 1,\n  nope FROM t", capsys)
    assert caught == "BindError: there is no column 'nope'\n3 |   nope FROM t\n      ^^^^"
    assert value(shell, "%sql SHOW TABLES").num_rows == 1           # what comes before the error is done
    assert "no value is given for :gone" in error(shell, "%sql SELECT :gone", capsys)
    assert error(shell, "%sql SELECT 1 / 0", capsys).splitlines() == ["EvaluationError: division by zero (row 0)"]
    assert error(shell, "%sql nowhere", capsys).endswith("\nwith --create the store is made")
    for line, reason in (
        ("SELEC 1", "unrecognized arguments: 1"), ("shop --role king", "invalid choice: 'king'"),
        ("'shop", "No closing quotation"), ("shop --role reader --create", "leave --create out"),
        ("db nonsense", "'nonsense' is no statement"), ("rows <<", "rows << is followed by a statement"),
    ):
        shown = error(shell, f"%sql {line}", capsys)
        assert shown.startswith("UsageError: ") and reason in shown, shown
    with pytest.raises(BindError, match="nope"):                    # a program gets the error itself
        shell.run_line_magic("sql", "SELECT nope")
    value(shell, "%sql --close")
    shell.user_ns["db"] = stream.connect("memory://")
    assert error(shell, "%sql SHOW TABLES", capsys).endswith("; %sql db takes that of a variable (db)")
    shell.user_ns["db"].close()


def test_the_end_of_the_program_keeps_what_was_changed(tmp_path: Path) -> None:
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("%load_ext stream", "%sql {tmp_path}/shop --create",
             "%%sql\\nCREATE TABLE t (k INT PRIMARY KEY);\\nINSERT INTO t VALUES (1)"):
    assert shell.run_cell(cell).success
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=None)
    with stream.connect(tmp_path / "shop", role="reader") as reader:
        assert reader.query("SELECT k FROM t").fetchall() == [(1,)]
