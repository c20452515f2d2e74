"""Sessions configured for our jobs, and requirements on sessions that a user brings."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hummock.base.extras import install_command, is_installed
from hummock.errors import InvalidOption, SparkMissing
from hummock.spark.worker import (
    DISK_CACHE,
    DISK_CACHE_WANTED,
    NICENESS,
    NICENESS_WANTED,
    is_niceness,
    is_size,
    size_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMITTED = "submitted"         # instead of a master: use spark-submit's
HEAP = "1g"                     # of driver and executor: rows are in the memory of Python workers
TASK_MEMORY_MB = 512            # of a Python worker; there is one per core
LEAST_WORKER_BYTES = 384 << 20  # least memory in which a worker can import its modules and run a task
HERE = re.compile(r"local(-cluster)?(\[.*\])?")     # masters with workers on this machine
PYTHON = "PYSPARK_PYTHON"
C1_ONLY = "-XX:TieredStopAtLevel=1"   # for a JVM that passes no rows: its compilers took a third of an epoch's CPU
SERIAL_GC = "-XX:+UseSerialGC"  # the threads of its collector took a tenth
JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")   # options of each JVM that starts
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")       # a JVM for which two are chosen does not start
ROWS_JVM = "-Darrow.enable_unsafe_memory_access=true"   # Arrow's bounds checks took a sixth of a JVM that reads rows

SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",      # halves the cost of a Python task
    "spark.python.worker.reuse": "true",
    "spark.sql.adaptive.enabled": "false",                  # partitions are already planned by bytes
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "100ms",                         # for the executor that has the groups of a task
    "spark.task.maxFailures": "4",
    "spark.task.reaper.enabled": "true",                    # kills cancelled tasks that do not end
    "spark.task.reaper.killTimeout": "120s",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.75",
    "spark.speculation.multiplier": "2",
    "spark.speculation.minTaskRuntime": "30s",
    "spark.speculation.task.duration.threshold": "120s",     # else the only task of a stage is never speculated
    "spark.driver.memory": HEAP,
    "spark.executor.memory": HEAP,
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


def spark_settings(master: str, *, archive: str | None = None, cores: int | None = None,
                   carries_rows: bool = True) -> dict[str, str]:
    """The settings for our jobs on `master`.

    `archive`: a packed environment with this package and its Python, as created by `venv-pack`, which executors unpack;
    None: they have it installed. `cores`: of an executor, if the master allows a choice. `carries_rows`: whether rows
    pass through Spark; those of an epoch, a backfill or a compaction do not. Executors of a cluster that read rows are
    faster with ROWS_JVM too.
    """
    settings = dict(SETTINGS)
    is_here = HERE.fullmatch(master) is not None
    if is_here or not carries_rows:
        options = ROWS_JVM if carries_rows else f"{C1_ONLY} {SERIAL_GC}" if is_here else C1_ONLY
        settings |= {f"spark.{process}.defaultJavaOptions": options for process in ("driver", "executor")}
    if archive is not None:
        settings |= {"spark.archives": f"{archive}#hummock", "spark.pyspark.python": "./hummock/bin/python"}
    elif HERE.fullmatch(master):
        root = str(Path(__file__).resolve().parents[2])
        settings |= {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": root}
    if not HERE.fullmatch(master):
        settings["spark.executor.memoryOverhead"] = f"{TASK_MEMORY_MB * (cores or 1) + 512}m"
        if cores is not None:
            settings["spark.executor.cores"] = str(cores)
    return settings


def spark_session(master: str, *, name: str = "hummock", settings: Mapping[str, str] | None = None,
                  carries_rows: bool = True) -> SparkSession:
    """A new session on `master`; `settings` override `spark_settings(master, carries_rows=carries_rows)`.

    "submitted" uses spark-submit's configuration, whose settings override ours too.

    Raises `SparkMissing` if pyspark or Java is missing, and `InvalidOption` if this process has a session already or a
    setting is invalid.
    """
    require_spark(master)
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise InvalidOption("master", master, "asked for where no session is active: give that one instead")
    chosen = spark_settings(master, carries_rows=carries_rows)
    builder = SparkSession.builder.appName(name)
    if master == SUBMITTED:
        given = SparkConf()
        chosen = {key: value for key, value in chosen.items() if not given.contains(key)}
    else:
        builder = builder.master(with_retries(master, chosen["spark.task.maxFailures"]))
    chosen |= settings or {}
    _choose_one_collector(chosen)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _python_named(chosen.get("spark.pyspark.python")):
        session = builder.getOrCreate()
    check_session(session)
    return session


def require_spark(master: str = "") -> None:
    """Raises `SparkMissing`, naming what to install, unless a session on `master` is possible."""
    for module in ("pyspark", "pandas"):
        if not is_installed(module):
            raise SparkMissing(module, install_command("spark"))
    if not master.startswith("sc://") and _java() is None:
        raise SparkMissing("Java", "install Java 17 or later (Debian: openjdk-17-jre-headless), or set JAVA_HOME to it")


def check_session(spark: SparkSession) -> None:
    """Raises `InvalidOption` with the setting's name if our jobs would fail in `spark`."""
    if int(spark.version.split(".")[0]) < 4:
        raise InvalidOption("pyspark", spark.version, "4 or later")
    for name, (does, wanted) in ASKED.items():
        value = spark.conf.get(name, None)
        if value is not None and not does(value):
            raise InvalidOption(name, value, wanted)


def with_retries(master: str, failures: str) -> str:
    """`master`, with task retries also where tasks are threads of the driver, for which there is no setting."""
    threads = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{threads[1] or 1},{failures}]" if threads else master


ASKED: dict[str, tuple[Callable[[str], bool], str]] = {
    "spark.executor.pyspark.memory": (
        lambda value: not 0 < size_of(value) < LEAST_WORKER_BYTES, "384m or more, or not set"),
    f"spark.executorEnv.{NICENESS}": (is_niceness, f"{NICENESS_WANTED}, or not set"),
    f"spark.executorEnv.{DISK_CACHE}": (is_size, f"{DISK_CACHE_WANTED}, or not set"),
}
"""What our jobs fail under: a setting, whether a value of it does, and what is wanted."""


def _choose_one_collector(settings: dict[str, str]) -> None:
    """Leaves out ours where the user, or the environment, names one."""
    named = [value for key, value in settings.items() if key.endswith(".extraJavaOptions")]
    if any(map(COLLECTOR.search, (*named, *(os.environ.get(name, "") for name in JVM_VARIABLES)))):
        for key in [key for key in settings if key.endswith(".defaultJavaOptions")]:
            settings[key] = settings[key].replace(SERIAL_GC, "").strip()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


@contextmanager
def _python_named(python: str | None) -> Iterator[None]:
    """Sessions created inside have their workers run `python`, unless the environment names another."""
    if python is None or PYTHON in os.environ:
        yield
        return
    os.environ[PYTHON] = python
    try:
        yield
    finally:
        del os.environ[PYTHON]
