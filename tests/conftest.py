"""Session-wide servers for the tests; each test gets its own prefix or schema."""

import gc
import logging
import os
import uuid

import pytest

from hummock.base.logs import install_handler
from hummock.errors import SparkMissing
from hummock.spark import spark_session
from hummock.spark.session import C1_ONLY, SERIAL_GC
from hummock.spark.worker import NICENESS
from tests.support.drivers import seeds
from tests.support.drivers.file_scheduler import FileScheduling, import_share
from tests.support.drivers.quick_files import quick_root
from tests.support.servers.postgres_server import running_server
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

WORKER_DAEMON = "tests.support.servers.spark_daemon"

seeds.run_seed()        # one for all processes of this run: children inherit it through the environment
seeds.vary()
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", quick_root())     # of `tmp_path`
JVM = f"{C1_ONLY} {SERIAL_GC}"              # a JVM that lives for seconds compiles in vain
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", JVM)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{JVM} -Dspark.python.daemon.module={WORKER_DAEMON}")
os.environ.setdefault(NICENESS, "0")        # some tests run tasks in this process, which must keep its priority


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """No search for garbage among millions of objects of tests, neither while they are collected nor in any test."""
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def seed_of_this_run():
    """Prints the seed, so that pytest shows it with a failed test."""
    print(seeds.repeated())


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"{seeds.repeated()} repeats the random numbers of this run")


@pytest.fixture
def plain_logging():
    """Takes off what commands of other tests of this process have installed, and in the end what this one did."""
    def take_off():
        install_handler()
        logging.root.removeHandler(logging.root.handlers[-1])
        for name in ("hummock", "relational", "stream"):
            logging.getLogger(name).setLevel(logging.NOTSET)

    take_off()
    yield
    take_off()


@pytest.fixture(scope="session")
def s3_endpoint():
    """The endpoint of an in-process S3 server."""
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
    """The URL of an empty prefix."""
    return f"s3://{s3_bucket}/some/prefix-{uuid.uuid4().hex}?endpoint={s3_endpoint}"


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a database; skips the test if no server is installed."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def spark():
    """A Spark session with two slots in this process; skips the test if Spark is not available."""
    try:
        session = spark_session("local[2]", name="tests", settings={"spark.ui.enabled": "false"})
    except SparkMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
