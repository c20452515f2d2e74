"""Which process of pytest-xdist imports and runs which file of tests when."""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[3]
SPARK = re.compile(r"\bmark\.spark\b")
SPARK_PROCESSES = 2
"""Of the processes, so many begin with the files of Spark: each has a JVM, which takes 18 s of CPU until it is warm."""
SHORT = re.compile(r"tests/(architecture|hummock|relational|rules|stream/\w+)/")
"""Folders whose tests are short: they come last, so that all processes end at about the same time."""


class FileScheduling(LoadFileScheduling):
    """A file is run by one process, those of long tests first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        for_spark = self.nodes.index(node) < SPARK_PROCESSES
        file = min(self.workqueue, key=lambda each: (needs_spark(each) != for_spark, SHORT.match(each) is not None))
        tests = self.workqueue.pop(file)
        self.assigned_work.setdefault(node, {})[file] = tests
        node.send_runtest_some([self._numbers[test] for test, is_done in tests.items() if not is_done])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """By id of the test; the search of the base class for each of them is quadratic."""
        return {test: number for number, test in enumerate(self.collection)}


@cache
def needs_spark(file: str) -> bool:
    path = ROOT / file
    return path.exists() and SPARK.search(path.read_text()) is not None


def import_share(config: pytest.Config) -> None:
    """In a process of a whole run: imports its share of the files, before it collects all of them in the order that is
    common to the processes. So each file, and what it imports, is compiled by one of them where no `.pyc` is there."""
    if not hasattr(config, "workerinput") or [ROOT / each for each in config.args] != [ROOT / "tests"]:
        return
    number, processes = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    for file in sorted((ROOT / "tests").rglob("test_*.py"))[number::processes]:
        with suppress(Exception, pytest.skip.Exception):        # the collection reports it
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
