"""The environment of a Spark task: the store at a URL, opened once per worker process, and the limits of the task.

Credentials are those of the worker's environment, as everywhere. No task calls the meta store.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import resource
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hummock.base.process import installed_version, prepare_process, return_freed_memory, use_system_arrow_pool
from hummock.columnar.buffer_pool import set_pool_limit
from hummock.epoch import monotonic_seconds
from hummock.errors import ExecutorUnfit, InvalidOption, ObjectStoreError
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore

SHIPPING = ("install the driver's wheel of this package in the executors' image, or pack an environment with it "
            "(venv-pack) and set spark.archives, as spark_settings(master, archive=...) does")
LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"
NICENESS = "HUMMOCK_TASK_NICENESS"      # in an executor's environment: nice value of its tasks
DISK_CACHE = "HUMMOCK_TASK_DISK_CACHE"  # in an executor's environment: bytes that each worker caches, 0: none
DISK_CACHE_BYTES = 1 << 30              # of a remote store, where Spark names a local directory
DISK_CACHE_WANTED = "a number of bytes in Spark's notation: 512m, 4g, 0"
SIZE = re.compile(r"\s*(\d+)\s*([bkmgt]?)b?\s*")
UNIT_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
TASK_NICENESS = 10
NICENESS_WANTED = "a whole number from 0 to 19"
KEPT_FREED_BYTES = 128 << 20    # of workers that run a task after the other: new pages took a fifth of their CPU time
POOL_BYTES = 64 << 20           # of buffers that such a worker keeps: with more it is not faster
MAPPED_BYTES = 8 << 20      # smaller buffers are reused: fresh pages per chunk cost a fifth of a task's time
MAY_PASS = (ObjectStoreError, OSError, MemoryError)     # may succeed elsewhere or later


def do_spec(version: str, work: str, spec: bytes, *, is_urgent: bool = False) -> tuple[bytes | None, str | None]:
    """The answer to a spec, or the error that no retry fixes. Raises transient errors, for Spark to retry. One that
    `is_urgent` has the priority of the worker."""
    try:
        begin_task(version, is_urgent=is_urgent)
        return work_of(work)(spec), None
    except MAY_PASS:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def begin_task(version: str, *, is_urgent: bool = False) -> None:
    """Applies our process settings and the niceness; if the task `is_urgent`, no niceness, and the settings of a worker
    that runs one such task after the other. What is imported is excluded from the garbage collection that Spark's
    workers run after each task. Raises `ExecutorUnfit` if the driver has another version.
    """
    if version != installed_version():
        found = f"it has version {installed_version()} of this package, the driver {version}"
        raise ExecutorUnfit("an executor", found, SHIPPING)
    if is_urgent:
        prepare_process(KEPT_FREED_BYTES)
        set_pool_limit(POOL_BYTES)
        use_system_arrow_pool()
    else:
        prepare_process()
        return_freed_memory(MAPPED_BYTES)
        lower_priority(task_niceness())
    _settle()


def task_niceness() -> int:
    """The value in the environment. Raises `InvalidOption`."""
    text = os.environ.get(NICENESS, str(TASK_NICENESS))
    if not is_niceness(text):
        raise InvalidOption(NICENESS, text, NICENESS_WANTED)
    return int(text)


def is_niceness(text: str) -> bool:
    return re.fullmatch("1?[0-9]", text) is not None


def lower_priority(niceness: int) -> None:
    """Gives this thread, and those that it starts, at least `niceness`."""
    if os.getpriority(os.PRIO_PROCESS, 0) < niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def work_of(name: str) -> Callable[[bytes], bytes]:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def shared_url(url: str) -> str:
    """`url` itself. Raises `InvalidOption` if other processes cannot reach that store."""
    if url.startswith("memory:"):
        raise InvalidOption("url", url, "a store that executors reach: file:// of a shared directory, s3://, ...")
    return url


@cache
def task_store(url: str) -> ObjectStore:
    """The store at `url`, kept open as long as the worker process lives. Raises `InvalidOption`."""
    return open_object_store(shared_url(url))


def task_memory(wanted_bytes: int) -> int:
    """`wanted_bytes`, or less: at most half of the worker's limit on its address space."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return wanted_bytes if limit == resource.RLIM_INFINITY else min(wanted_bytes, limit // 2)


def local_directory() -> str | None:
    """Directory for a task's temporary files: below one that Spark removes when the executor ends, since a killed
    worker removes nothing; None if Spark names none: the system default.
    """
    named = [each for each in os.environ.get(LOCAL_DIRECTORIES, "").split(",") if each and Path(each).is_dir()]
    return named[os.getpid() % len(named)] if named else None


def disk_cache(url: str) -> tuple[str, int]:
    """A directory for the caches of the workers of an executor, and the bytes that each may keep there of the files of
    the store at `url`; 0 of one on a local disk. Spark removes it with the executor. Raises `InvalidOption`."""
    text = os.environ.get(DISK_CACHE, str(DISK_CACHE_BYTES))
    if not is_size(text):
        raise InvalidOption(DISK_CACHE, text, DISK_CACHE_WANTED)
    size, below = size_of(text, "b"), local_directory()
    if url.startswith("file:") or below is None or not size:
        return "", 0
    return str(Path(below) / "hummock-cache"), size


def is_size(text: str) -> bool:
    """Whether it is a size in Spark's notation."""
    return SIZE.fullmatch(text.lower()) is not None


def size_of(text: str, unit: str = "m") -> int:
    """Bytes of a size in Spark's notation: 512m, 1g, and a bare number in `unit`s."""
    found = SIZE.fullmatch(text.lower())
    if found is None:
        raise InvalidOption("size", text, "a number with b, k, m, g or t behind it")
    return int(found[1]) * UNIT_BYTES[found[2] or unit]


@cache
def executor_name() -> str:
    """The host and the id of this worker's executor as "host_id", as Spark names where a task should run; empty if
    unknown. Spark does not pass them to its workers: they are arguments of the process above the worker's daemon."""
    if sys.platform != "linux":
        return ""
    try:
        daemon = _parent_of(os.getpid())
        for pid in (daemon, _parent_of(daemon)):
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "--executor-id" in arguments and "--hostname" in arguments:
                host, number = (arguments[arguments.index(name) + 1] for name in ("--hostname", "--executor-id"))
                return f"{host}_{number}"
    except (OSError, IndexError, ValueError):
        pass
    return ""


def _parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def deadline(limit_ms: int) -> Callable[[], bool]:
    """Returns a function: whether `limit_ms` milliseconds have passed since this call."""
    ends = monotonic_seconds() + limit_ms / 1000
    return lambda: monotonic_seconds() >= ends


_settled_modules = 0


def _settle() -> None:
    """Freezes the objects of imported modules, so that later collections skip them: saves 45 ms after each task."""
    global _settled_modules
    if len(sys.modules) > _settled_modules:
        _settled_modules = len(sys.modules)
        gc.freeze()
