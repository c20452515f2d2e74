"""Servers of the tests' own, one of each for a whole run; a test gets a prefix or a schema that nobody else uses."""

import os
import uuid

import pytest

from hummock.errors import SparkMissing
from hummock.spark import spark_session
from hummock.spark.worker import NICENESS
from tests.support.drivers import seeds
from tests.support.servers.postgres_server import running_server
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

seeds.run_seed()        # of all processes of this run: those that come have it from the environment
seeds.vary()
os.environ.setdefault(NICENESS, "0")        # some tests do tasks in this process, which keeps its priority


@pytest.fixture(autouse=True)
def seed_of_this_run():
    """A test that fails shows what repeats it."""
    print(seeds.repeated())


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"{seeds.repeated()} repeats the random numbers of this run")


@pytest.fixture(scope="session")
def s3_endpoint():
    """Of a real S3 server."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        return make_bucket(s3_endpoint)


@pytest.fixture
def s3_credentials(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_url(s3_endpoint, s3_bucket, s3_credentials):
    """A place that holds nothing yet."""
    return f"s3://{s3_bucket}/some/prefix-{uuid.uuid4().hex}?endpoint={s3_endpoint}"


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a database; the test is skipped where no server is installed."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def spark():
    """A Spark session of two slots in this process; the test is skipped where it cannot be had."""
    try:
        session = spark_session("local[2]", name="tests", settings={"spark.ui.enabled": "false"})
    except SparkMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
