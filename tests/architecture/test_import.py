"""What `import stream` and `hummock --help` import."""

import importlib
import importlib.metadata
import subprocess
import sys

from click.testing import CliRunner

import stream
from stream.cli.main import COMMANDS, LazyCommand, main

NOT_AT_IMPORT = ("pandas", "pyspark", "sqlglot", "boto3", "opendal", "psycopg", "duckdb", "polars", "pybloom_live",
                 "prometheus_client", "http.client", "stream.examples.flights.connector", "stream.spark.driver")
NOT_BY_A_SESSION = ("pandas", "pyspark", "boto3", "opendal", "psycopg", "duckdb", "polars", "pybloom_live",
                    "stream.examples.flights.connector", "stream.session.bulk_load")


def imported(code, names):
    command = f"import sys; {code}; print([name for name in {names} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.strip()


def test_nothing_large_is_imported_before_it_is_used():
    assert imported("import stream", NOT_AT_IMPORT) == "[]"
    assert imported("import stream.session.session", NOT_AT_IMPORT) == "[]"
    assert imported("import stream; stream.connect('memory://').close()", NOT_BY_A_SESSION) == "[]"


def test_who_follows_changes_does_not_wait_for_pandas(tmp_path):
    with stream.connect(tmp_path / "store", create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, n NUMERIC)")
        db.sql("INSERT INTO t VALUES (1, 'a', 2)")
        db.flush()
    code = (f"import stream; reader = stream.connect({str(tmp_path / 'store')!r}, role='reader');"
            "assert reader.changes('t').read().num_rows == 1; reader.close()")
    assert imported(code, NOT_BY_A_SESSION) == "[]"


def test_every_name_of_the_api_is_there():
    for name in stream.__all__:
        assert getattr(stream, name) is getattr(stream, name)
        assert name in dir(stream)
    assert not hasattr(stream, "nothing")


def test_the_list_of_commands_says_what_the_commands_say():
    for name in COMMANDS:
        listed = main.commands[name]
        assert isinstance(listed, LazyCommand)
        loaded = listed.load()
        assert (listed.name, listed.get_short_help_str(200)) == (loaded.name, loaded.get_short_help_str(200))


def test_the_packages_have_the_version_of_the_distribution():
    version = importlib.metadata.version("hummock")
    for package in ("hummock", "relational", "stream"):
        assert importlib.import_module(package).__version__ == version
        assert not hasattr(importlib.import_module(package), "__versions__")
    assert CliRunner().invoke(main, ["--version"]).output == f"hummock, version {version}\n"
    assert imported("import stream", ("importlib.metadata", "email.parser")) == "[]"
