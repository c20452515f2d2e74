"""Spark sessions: their settings, errors where none can be created, and checks of a user's own session."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hummock.errors import InvalidOption, SparkMissing
from hummock.spark import check_session, spark_session, spark_settings
from hummock.spark.session import LEAST_WORKER_BYTES, _choose_one_collector, with_retries
from hummock.spark.worker import size_of

pytestmark = pytest.mark.spark


def test_workers_of_this_machine_run_this_python_and_find_this_package():
    for master in ("local", "local[2]", "local[*]", "local-cluster[2,1,1024]"):
        settings = spark_settings(master)
        assert settings["spark.pyspark.python"] == sys.executable
        asked = "import hummock; print(hummock.__file__)"
        found = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True, cwd="/",
                               env={"PYTHONPATH": settings["spark.executorEnv.PYTHONPATH"]}).stdout
        assert found.strip() == sys.modules["hummock"].__file__


def test_the_jvms_of_this_machine_compile_quickly_without_rows_and_read_rows_without_arrows_checks():
    names = {"spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"}
    for master in ("local[2]", "local-cluster[2,1,1024]"):
        settings = spark_settings(master, carries_rows=False)
        assert {settings[name] for name in names} == {"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        settings = spark_settings(master)
        assert {settings[name] for name in names} == {"-Darrow.enable_unsafe_memory_access=true"}
    assert names.isdisjoint(spark_settings("spark://host:7077"))      # a remote one that reads rows keeps its own
    settings = spark_settings("spark://host:7077", carries_rows=False)
    assert {settings[name] for name in names} == {"-XX:TieredStopAtLevel=1"}


@pytest.mark.parametrize(("settings", "environment", "kept"), [
    ({}, "", True), ({"spark.driver.extraJavaOptions": "-Da=b"}, "", True),
    ({"spark.executor.extraJavaOptions": "-Da=b -XX:+UseG1GC"}, "", False), ({}, "-XX:+UseZGC", False)])
def test_a_jvm_has_one_collector_the_one_of_the_user_if_there_is_one(monkeypatch, settings, environment, kept):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", environment)
    chosen = spark_settings("local[2]", carries_rows=False) | settings
    _choose_one_collector(chosen)
    assert ("-XX:+UseSerialGC" in chosen["spark.driver.defaultJavaOptions"]) == kept
    assert "-XX:TieredStopAtLevel=1" in chosen["spark.driver.defaultJavaOptions"]


def test_a_packed_environment_brings_its_own_python():
    settings = spark_settings("spark://host:7077", archive="s3://b/env.tar.gz", cores=4)
    assert settings["spark.archives"] == "s3://b/env.tar.gz#hummock"
    assert settings["spark.pyspark.python"] == "./hummock/bin/python"
    assert settings["spark.executor.cores"] == "4"
    assert "spark.executorEnv.PYTHONPATH" not in settings


def test_memory_beside_the_heap_grows_with_the_tasks_of_an_executor():
    one, four = (size_of(spark_settings("yarn", cores=cores)["spark.executor.memoryOverhead"]) for cores in (1, 4))
    assert four - one == 3 * (512 << 20)


@pytest.mark.parametrize(("master", "expected"), [
    ("local", "local[1,4]"), ("local[2]", "local[2,4]"), ("local[*]", "local[*,4]"), ("local[2,9]", "local[2,9]"),
    ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"), ("spark://host:7077", "spark://host:7077")])
def test_threads_of_the_driver_retry_tasks_as_executors_do(master, expected):
    assert with_retries(master, "4") == expected


@pytest.mark.parametrize(("text", "size"), [("512m", 512 << 20), ("1G", 1 << 30), ("7", 7 << 20), ("3kb", 3 << 10)])
def test_sizes_are_read_as_spark_writes_them(text, size):
    assert size_of(text) == size


def test_a_size_that_is_none_is_refused():
    with pytest.raises(InvalidOption, match="lots"):
        size_of("lots")


def test_without_java_it_is_said_what_to_install(monkeypatch, tmp_path):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkMissing, match="Java 17"):
        spark_session("local[2]")


@pytest.mark.parametrize("module", ["pyspark", "pandas"])
def test_without_its_packages_it_is_said_what_to_install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SparkMissing, match=rf"{module}.*pip install 'hummock\[spark\]'"):
        spark_session("local[2]")


def test_the_package_imports_no_pyspark():
    code = ("import sys; sys.modules['pyspark'] = None;"
            "import hummock, hummock.spark, hummock.cli, stream, relational")
    subprocess.run([sys.executable, "-c", code], check=True)


class Session:
    """A fake session: a version and settings."""

    def __init__(self, settings=None, version="4.3.0"):
        self.version, self.conf = version, settings or {}


def test_a_session_under_which_tasks_would_fail_is_refused_by_the_settings_name():
    pytest.importorskip("pyspark")
    check_session(Session())
    memory, niceness = "spark.executor.pyspark.memory", "spark.executorEnv.HUMMOCK_TASK_NICENESS"
    cache = "spark.executorEnv.HUMMOCK_TASK_DISK_CACHE"
    for name, value in ((memory, "512m"), (memory, f"{LEAST_WORKER_BYTES}b"), (niceness, "0"), (niceness, "19"),
                        (cache, "0"), (cache, "4g")):
        check_session(Session({name: value}))
    for name, value in ((memory, "100m"), (niceness, "20"), (niceness, "-1"), (niceness, "ten"), (niceness, ""),
                        (cache, "lots")):
        with pytest.raises(InvalidOption, match=re.escape(name)):
            check_session(Session({name: value}))
    with pytest.raises(InvalidOption, match="pyspark"):
        check_session(Session(version="3.5.1"))


def test_a_second_session_is_not_made_beside_one_that_is_active(spark):
    with pytest.raises(InvalidOption, match="no session is active"):
        spark_session("local[2]")
