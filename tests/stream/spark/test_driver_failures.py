"""Epochs of a SparkWorker in the process of its driver, whose own calls of the store fail."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.base import SSTABLE_PREFIX
from hummock.object_store.memory import MemoryObjectStore
from stream.playground import Playground
from stream.session.connect import playground_options
from stream.session.session import Session
from stream.spark.spark_worker import SparkWorker
from tests.simulation.graph_engines import LocalTasks
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore


@pytest.mark.timeout(60)
def test_a_recovery_heals_a_failure_of_an_actors_read():
    plan = FaultPlan()
    objects = FaultyObjectStore(MemoryObjectStore(), plan)
    engine = partial(SparkWorker, tasks=LocalTasks(objects, 0, 1, Counter()))
    options = playground_options({"barrier_interval_ms": 10_000, "inbox_poll_ms": 0})
    with Session(Playground(objects, MemoryMetaStore(), options, engine=engine)) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
        db.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        db.flush()
        plan.add(Fault(FaultKind.BEFORE, "get", SSTABLE_PREFIX))
        db.sql("INSERT INTO t VALUES (3, 1)")
        db.flush()
        assert plan.hits == 1
        assert sorted((row["k"], row["n"]) for row in db.sql("SELECT * FROM v").rows()) == [(1, 2), (2, 1)]
