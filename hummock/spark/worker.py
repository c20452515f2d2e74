"""In a task: the store at a URL, opened once for each worker process, and what bounds the task.

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

from hummock.base.process import installed_version, prepare_process, return_freed_memory
from hummock.epoch import monotonic_seconds
from hummock.errors import ExecutorUnfit, InvalidOption, ObjectStoreError
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore

SHIPPING = ("install the driver's wheel of this package in the executors' image, or pack an environment with it "
            "(venv-pack) and set spark.archives, as spark_settings(master, archive=...) does")
LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"
NICENESS = "HUMMOCK_TASK_NICENESS"      # in an executor's environment: how much its tasks give way to other processes
TASK_NICENESS = 10
NICENESS_WANTED = "a whole number from 0 to 19"
MAPPED_BYTES = 8 << 20      # a task's buffers below come and go with every chunk: a fifth of its time, if as new pages
MAY_PASS = (ObjectStoreError, OSError, MemoryError)     # elsewhere, or later


def do_spec(version: str, work: str, spec: bytes) -> tuple[bytes | None, str | None]:
    """The answer to a spec, or the error that no retry helps against. Raises what may pass, for Spark to try again."""
    try:
        begin_task(version)
        return work_of(work)(spec), None
    except MAY_PASS:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def begin_task(version: str) -> None:
    """Sets what a process of ours sets, gives way to who serves on the same machine, and leaves what is imported out
    of the collection that Spark's workers make after each task. Raises `ExecutorUnfit` where the driver has another
    version than is here.
    """
    if version != installed_version():
        found = f"it has version {installed_version()} of this package, the driver {version}"
        raise ExecutorUnfit("an executor", found, SHIPPING)
    prepare_process()
    return_freed_memory(MAPPED_BYTES)
    give_way(task_niceness())
    _settle()


def task_niceness() -> int:
    """What the environment says. Raises `InvalidOption`."""
    text = os.environ.get(NICENESS, str(TASK_NICENESS))
    if not is_niceness(text):
        raise InvalidOption(NICENESS, text, NICENESS_WANTED)
    return int(text)


def is_niceness(text: str) -> bool:
    return re.fullmatch("1?[0-9]", text) is not None


def give_way(niceness: int) -> None:
    """This thread, and those that it starts, have `niceness` from here on, or more."""
    if os.getpriority(os.PRIO_PROCESS, 0) < niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def work_of(name: str) -> Callable[[bytes], bytes]:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def shared_url(url: str) -> str:
    """`url` itself. Raises `InvalidOption` where it names no store that other processes reach."""
    if url.startswith("memory:"):
        raise InvalidOption("url", url, "a store that executors reach: file:// of a shared directory, s3://, ...")
    return url


@cache
def task_store(url: str) -> ObjectStore:
    """The store at `url`, kept open as long as the worker process lives. Raises `InvalidOption`."""
    return open_object_store(shared_url(url))


def task_memory(wanted_bytes: int) -> int:
    """As much of `wanted_bytes` as the worker's limit on its address space leaves: at most half of that."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return wanted_bytes if limit == resource.RLIM_INFINITY else min(wanted_bytes, limit // 2)


def local_directory() -> str | None:
    """Where files of a task's own go: below a directory that Spark removes when the executor ends, as a worker that is
    killed removes nothing; None where Spark names none: the machine's usual place."""
    named = [each for each in os.environ.get(LOCAL_DIRECTORIES, "").split(",") if each and Path(each).is_dir()]
    return named[os.getpid() % len(named)] if named else None


def deadline(limit_ms: int) -> Callable[[], bool]:
    """Whether `limit_ms` milliseconds are over, counted from now on."""
    ends = monotonic_seconds() + limit_ms / 1000
    return lambda: monotonic_seconds() >= ends


_settled_modules = 0


def _settle() -> None:
    """What modules made stays, and is looked at by no later collection: 45 ms after each task, else."""
    global _settled_modules
    if len(sys.modules) > _settled_modules:
        _settled_modules = len(sys.modules)
        gc.freeze()
