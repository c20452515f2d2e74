import gc
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

import stream
from stream.cli.main import main
from stream.connector.base import register_connector
from tests.simulation.test_source import HistoryConnector


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def hummock(monkeypatch):
    prepared = []
    monkeypatch.setattr("stream.cli.main.prepare_process", lambda kept_bytes: prepared.append(True))

    def run(*arguments, **keywords):
        result = CliRunner().invoke(main, arguments, **keywords)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert prepared
        return result

    yield run
    gc.unfreeze()


def test_statements_of_the_command_line_are_run_and_printed(hummock, url):
    result = hummock(
        "sql", url, "--create",
        "-c", "CREATE TABLE t (a BIGINT, b VARCHAR)",
        "-c", "CREATE MATERIALIZED VIEW mv AS SELECT SUM(a) AS a, b FROM t GROUP BY b",
        "-c", "INSERT INTO t VALUES (2, 'AMERICA'), (4, 'AMERICA'), (5, NULL); FLUSH",
        "-c", "SELECT * FROM mv ORDER BY a DESC",
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.output == "a,b\n6,AMERICA\n5,\n"


def test_tables_are_printed_with_what_statements_did_if_they_are_asked_for(hummock):
    result = hummock("sql", "memory://", "--format", "table", "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)",
                     "-c", "FLUSH; SELECT a FROM t")
    lines = result.output.splitlines()
    assert [line for line in lines if line[0] not in "┌├└"] == [
        "done", "1 row", "done", "│   a │", "│ INT │", "│   7 │", "1 row"]


def test_an_error_is_a_line_and_a_status(hummock, url):
    result = hummock("sql", url, "--create", "-c", "SELECT nope FROM nothere", "-c", "SELECT 1")
    assert (result.exit_code, result.output.count("Error"), result.stdout) == (1, 1, "")
    assert "nothere" in result.output and "Traceback" not in result.output
    result = hummock("sql", "ftp://host/store", "-c", "SELECT 1")
    assert (result.exit_code, "ftp://host/store" in result.output) == (1, True)


def test_a_pipe_is_executed_up_to_the_first_error_unless_it_goes_on(hummock):
    text = "CREATE TABLE t (a INT);\nbad;\nINSERT INTO t\nVALUES (1),\n(2);\nFLUSH; SELECT COUNT(*) AS n FROM t"
    stopped = hummock("sql", "memory://", input=text)
    assert (stopped.exit_code, stopped.stdout) == (1, "")
    assert stopped.stderr.startswith("<stdin>:2: ParseError: there is no statement 'BAD'")
    went_on = hummock("sql", "memory://", "--on-error", "continue", input=text)
    assert (went_on.exit_code, went_on.stdout, went_on.stderr) == (0, "n\n2\n", stopped.stderr)


def test_a_shell_reads_beside_the_session_that_writes(hummock, url):
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); FLUSH")
        read = hummock("sql", url, "-c", "SELECT a FROM t", "-c", "\\conninfo", "-c", "\\d t")
        assert (read.exit_code, read.stderr) == (0, "") and read.stdout.startswith(f"a\n1\nThis shell reads {url}")
        refused = hummock("sql", url, "-c", "INSERT INTO t VALUES (2)")
        assert refused.exit_code == 1 and "ReadOnlySession" in refused.stderr and "--write" in refused.stderr
        taken = hummock("sql", url, "--write", "-c", "SELECT 1")
        assert taken.exit_code == 1 and "WriterRunning" in taken.stderr and "--take-over" in taken.stderr
        db.sql("INSERT INTO t VALUES (3); FLUSH")
        assert hummock("sql", url, "--take-over", "-c", "SELECT COUNT(*) AS n FROM t").stdout == "n\n2\n"
        db.abandon()


def test_a_mistyped_store_is_not_made(hummock, url, tmp_path):
    for options in ((), ("--write",)):
        missing = hummock("sql", url, *options, "-c", "SELECT 1")
        assert missing.exit_code == 1 and "--create" in missing.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_pipe_has_rows_only_without_padding_or_colours(hummock):
    result = hummock("sql", "memory://", input="select 1 as a, 'x' as b")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a,b\n1,x\n", "")
    assert hummock("playground", input="\\echo a b\n").stdout == "a b\n"


def test_rows_go_to_a_file(hummock, tmp_path):
    path = tmp_path / "rows"

    def run(format_, text):
        return hummock("sql", "memory://", "--format", format_, "--output", str(path), "-c", text)

    result = run("ndjson", "SELECT 1 AS a; SELECT 2 AS b")
    assert (result.exit_code, result.output) == (0, "")
    assert path.read_text() == '{"a": 1}\n{"b": 2}\n'
    arrow = run("arrow", "SELECT 1 AS a; SELECT 2 AS a")
    assert arrow.exit_code == 0
    with pa.ipc.open_file(path) as rows:
        assert rows.read_all().to_pydict() == {"a": [1, 2]}
    other = run("arrow", "SELECT 1 AS a; SELECT 'x' AS a")
    assert other.exit_code == 1 and "other columns" in other.stderr
    lost = hummock("sql", "memory://", "--format", "arrow", "-c", "SELECT 1")
    assert lost.exit_code == 1 and "--output FILE" in lost.stderr


def test_a_file_of_statements(hummock, url, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE t (v VARCHAR); INSERT INTO t VALUES ('a;b'); FLUSH;\nSELECT v FROM t")
    assert hummock("sql", url, "--create", "-f", str(script)).output == "v\na;b\n"
    script.write_text("SELECT v FROM t;\n\nSELECT\n  v, w\nFROM t;\nSELECT 1")
    failed = hummock("sql", url, "--write", "-f", str(script))
    assert (failed.exit_code, failed.stdout) == (1, "v\na;b\n")
    assert failed.stderr == f"{script}:4: BindError: there is no column 'w'\n4 |   v, w\n         ^\n"


def test_functions_of_the_store_run_if_they_are_allowed(hummock, url):
    create = ("CREATE TABLE t (a BIGINT); CREATE FUNCTION own(a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE AS "
              "$$\nimport os; import pyarrow.compute as pc\ndef own(a): return pc.add(a, 1)\n$$; "
              "CREATE MATERIALIZED VIEW v AS SELECT own(a) AS b FROM t; INSERT INTO t VALUES (41)")
    assert hummock("sql", url, "--create", "--allow-user-functions", "-c", create).exit_code == 0
    for command in (("sql", url, "--write", "-c", "SELECT b FROM v"), ("playground", url),
                    ("stream", "--store", url, "--seconds", "0.1")):
        refused = hummock(*command)
        assert refused.exit_code == 1 and "allow_user_functions" in refused.output
        assert hummock(*command, "--allow-user-functions").exit_code == 0
    assert "42" in hummock("sql", url, "--allow-user-functions", "-c", "SELECT b FROM v").output


def test_the_command_that_keeps_the_jobs_exempts_objects_of_its_start_from_collections(hummock, url):
    hummock("sql", url, "--create", "-c", "CREATE TABLE t (a INT)")
    gc.unfreeze()
    assert hummock("stream", "--store", url, "--seconds", "0.1").exit_code == 0
    assert gc.get_freeze_count() > 10_000, "those of modules"


def test_an_older_copy_is_refused_until_it_is_accepted(hummock, url, tmp_path):
    directory, backup = tmp_path / "store", tmp_path / "backup"
    hummock("sql", url, "--create", "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); FLUSH")
    shutil.copytree(directory, backup)
    hummock("sql", url, "--write", "-c", "INSERT INTO t VALUES (2); FLUSH")
    shutil.copytree(backup, directory, dirs_exist_ok=True)
    for command in (("sql", url, "-c", "SELECT a FROM t"), ("version", url), ("verify", url)):
        refused = hummock(*command)
        shown = " ".join(refused.output.split())
        assert refused.exit_code == 1 and "--accept-rollback" in shown and "witness" in shown
    assert "committed epoch" in hummock("version", url, "--accept-rollback").output
    assert hummock("sql", url, "-c", "SELECT a FROM t").output == "a\n1\n"


def test_storage_commands_are_there_too(hummock, url):
    hummock("sql", url, "--create", "-c", "CREATE TABLE t (a INT)")
    assert "committed epoch" in hummock("version", url).output
    listed = hummock("--help").output
    assert all(name in listed for name in ("sql", "playground", "flights", "sst-dump", "version", "verify"))


def test_a_store_whose_connector_is_gone_can_still_be_looked_at(hummock, url, monkeypatch):
    register_connector("history", HistoryConnector)
    with stream.connect(url, create=True) as db:
        db.sql(
            "CREATE TABLE events (id BIGINT PRIMARY KEY, kind VARCHAR, value BIGINT) "
            "WITH (connector = 'history', seed = '1', steps = '10')"
        )
    monkeypatch.setattr("stream.connector.base._FACTORIES", {})
    result = hummock("sql", url, "--write", "-c", "SHOW SOURCES")
    assert result.exit_code == 0
    assert "sources are paused" in result.output and "not registered" in result.output
    assert "events" in result.output


def test_a_paused_session_cannot_resume_a_source_without_its_connector(url, monkeypatch):
    register_connector("history", HistoryConnector)
    options = "WITH (connector = 'history', seed = '1', steps = '10')"
    with stream.connect(url, create=True, sources_paused=True) as db:
        db.sql(f"CREATE TABLE events (id BIGINT PRIMARY KEY, kind VARCHAR, value BIGINT) {options}")
    with monkeypatch.context() as patched:
        patched.setattr("stream.connector.base._FACTORIES", {})
        with stream.connect(url, create=True, sources_paused=True) as db:
            with pytest.raises(stream.errors.UnknownConnector):
                db.resume()
            assert db.sql("SELECT COUNT(*) AS n FROM events").to_arrow()["n"].to_pylist() == [0]
    with stream.connect(url, create=True, sources_paused=True) as db:
        db.resume()
        while db.source_offsets("events") != {"all": "10"}:
            db.flush()


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "stream", "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
