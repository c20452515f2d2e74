import shutil
import subprocess
import sys

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

    return run


def test_statements_of_the_command_line_are_run_and_printed(hummock, url):
    result = hummock(
        "sql", url,
        "-c", "CREATE TABLE t (a BIGINT, b VARCHAR)",
        "-c", "CREATE MATERIALIZED VIEW mv AS SELECT SUM(a) AS a, b FROM t GROUP BY b",
        "-c", "INSERT INTO t VALUES (2, 'AMERICA'), (4, 'AMERICA'), (5, NULL); FLUSH",
        "-c", "SELECT * FROM mv ORDER BY a DESC",
    )  # fmt: skip
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if line[:1] in "│d23"] == [
        "done", "done", "3 rows", "done", "│ 6 │ AMERICA │", "│ 5 │ NULL    │", "2 rows",
    ]  # fmt: skip


def test_an_error_is_a_line_and_a_status(hummock, url):
    result = hummock("sql", url, "-c", "SELECT nope FROM nothere", "-c", "SELECT 1")
    assert (result.exit_code, result.output.count("Error")) == (1, 1)
    assert "nothere" in result.output and "Traceback" not in result.output
    result = hummock("sql", "ftp://host/store", "-c", "SELECT 1")
    assert (result.exit_code, "ftp://host/store" in result.output) == (1, True)


def test_the_prompt_goes_on_after_an_error_and_statements_span_lines(hummock):
    text = "CREATE TABLE t (a INT);\nbad;\nINSERT INTO t\nVALUES (1),\n(2);\nFLUSH; SELECT COUNT(*) AS n FROM t;\n"
    result = hummock("playground", input=text)
    assert result.exit_code == 0
    assert "ParseError" in result.output and "2 rows" in result.output and "│ 2 │" in result.output


def test_a_file_of_statements(hummock, url, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE t (v VARCHAR); INSERT INTO t VALUES ('a;b'); FLUSH;\nSELECT v FROM t")
    assert "a;b" in hummock("sql", url, "-f", str(script)).output


def test_functions_of_the_store_run_if_they_are_allowed(hummock, url):
    create = ("CREATE TABLE t (a BIGINT); CREATE FUNCTION own(a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE AS "
              "$$\nimport os; import pyarrow.compute as pc\ndef own(a): return pc.add(a, 1)\n$$; "
              "CREATE MATERIALIZED VIEW v AS SELECT own(a) AS b FROM t; INSERT INTO t VALUES (41)")
    assert hummock("sql", url, "--allow-user-functions", "-c", create).exit_code == 0
    for command in (("sql", url, "-c", "SELECT b FROM v"), ("playground", url),
                    ("stream", "--store", url, "--seconds", "0.1")):
        refused = hummock(*command)
        assert refused.exit_code == 1 and "allow_user_functions" in refused.output
        assert hummock(*command, "--allow-user-functions").exit_code == 0
    assert "42" in hummock("sql", url, "--allow-user-functions", "-c", "SELECT b FROM v").output


def test_an_older_copy_is_refused_until_it_is_accepted(hummock, url, tmp_path):
    directory, backup = tmp_path / "store", tmp_path / "backup"
    hummock("sql", url, "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); FLUSH")
    shutil.copytree(directory, backup)
    hummock("sql", url, "-c", "INSERT INTO t VALUES (2); FLUSH")
    shutil.copytree(backup, directory, dirs_exist_ok=True)
    for command in (("sql", url, "-c", "SELECT a FROM t"), ("version", url), ("verify", url)):
        refused = hummock(*command)
        shown = " ".join(refused.output.split())
        assert refused.exit_code == 1 and "--accept-rollback" in shown and "witness" in shown
    assert "committed epoch" in hummock("version", url, "--accept-rollback").output
    assert "1 row" in hummock("sql", url, "-c", "SELECT a FROM t").output


def test_storage_commands_are_there_too(hummock, url):
    hummock("sql", url, "-c", "CREATE TABLE t (a INT)")
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
    result = hummock("sql", url, "-c", "SHOW SOURCES")
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
