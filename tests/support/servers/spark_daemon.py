"""The daemon that forks Spark's Python workers, with their modules imported already.

A worker takes 1.6 s of CPU for its imports; tasks that are killed, and the queries of most sessions, start several.

    SPARK_SUBMIT_OPTS=-Dspark.python.daemon.module=tests.support.servers.spark_daemon
"""

from __future__ import annotations

import importlib

from pyspark import daemon

MODULES = ("pandas", "pyspark.worker", "hummock.compaction.worker_task", "relational.spark.source",
           "stream.spark.spark_worker")

if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    daemon.manager()
