"""A forked child gets StoreForked from its parent's handles, whatever locks are held, and exits."""

import subprocess
import sys
from contextlib import ExitStack

import pyarrow as pa
import pytest

import hummock
import stream
from hummock.base.key import KeyRange
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from tests.support.drivers.forks import outcomes_in_a_child

NEVER_MS = 3_600_000


@pytest.mark.parametrize("url", ["memory://", "file"])
def test_every_call_of_a_session_is_refused_in_a_child(url, tmp_path):
    db = stream.connect(f"file://{tmp_path}/store" if url == "file" else url, create=True, barrier_interval_ms=NEVER_MS)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); INSERT INTO t VALUES (1, 1); FLUSH")
    table, snapshot = db.table("t"), db.at()
    query = db.sql("SELECT * FROM t")
    calls = {
        "select": lambda: db.sql("SELECT * FROM t"),
        "rows": lambda: query.to_arrow(),
        "insert": lambda: db.sql("INSERT INTO t VALUES (2, 2)"),
        "insert rows": lambda: table.insert(pa.table({"id": [3], "v": [3]})),
        "delete": lambda: table.delete(id=1),
        "ddl": lambda: db.create_table("u", {"id": "bigint"}, primary_key="id"),
        "flush": db.flush,
        "at": db.at,
        "epoch": lambda: db.committed_epoch,
        "snapshot": lambda: snapshot.sql("SELECT * FROM t").to_arrow(),
        "alive": db.check_alive,
    }
    ends = {"snapshot ends": snapshot.close, "close": db.close, "abandon": db.abandon}
    playground = db._playground
    with playground.storage._changed:                   # no thread of the child will release it
        outcomes = outcomes_in_a_child(calls | ends)
    assert {name for name in calls if not outcomes[name].startswith("StoreForked")} == set(), outcomes
    assert {name for name in ends if outcomes[name]} == set(), outcomes
    assert "open it again there" in outcomes["flush"]
    db.sql("INSERT INTO t VALUES (4, 4)")
    db.flush()
    assert db.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [2]
    snapshot.close()
    db.close()


def test_every_call_of_a_store_is_refused_in_a_child():
    with hummock.open("memory://") as store, ExitStack() as resources:
        first = Epoch(1 << 16)
        store.ingest_batch(WriteBatch([(b"k", b"v")]), first)
        store.commit(first)
        second = Epoch(2 << 16)
        pinned = resources.enter_context(store.pinned_version())
        calls = {
            "get": lambda: store.get(b"k", first),
            "get_many": lambda: store.get_many(pa.array([b"k"], pa.binary()), first),
            "scan": lambda: list(store.scan(KeyRange(), first)),
            "changes": lambda: list(store.changes(KeyRange(), first, first)),
            "ingest": lambda: store.ingest_batch(WriteBatch([(b"k", b"w")]), second),
            "seal": lambda: store.seal_epoch(second),
            "sync": lambda: store.sync(second),
            "commit": lambda: store.commit(second),
            "clear": store.clear_uncommitted,
            "compact": store.compact,
            "vacuum": store.vacuum,
            "wait": lambda: store.wait_epoch(second),
            "stats": store.stats,
            "snapshot": lambda: store.snapshot().__enter__(),
            "pinned version": pinned.check,
        }
        with store._changed:
            outcomes = outcomes_in_a_child(calls | {"close": store.close})
        assert {name for name in calls if not outcomes[name].startswith("StoreForked")} == set(), outcomes
        assert outcomes["close"] == ""
        assert store.get(b"k", first) == b"v"


PROGRAM = """
import os, sys, stream
db = stream.connect(sys.argv[1], create=True)
db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
child = os.fork()
if child == 0:
    try:
        with db:
            db.sql("INSERT INTO t VALUES (2)")
    except Exception as error:
        print(type(error).__name__, flush=True)
    sys.exit(3)                 # through every handler of an end
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
db.close()
print("closed")
"""


@pytest.mark.timeout(120)
def test_a_child_ends_and_so_does_its_parent(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, f"file://{tmp_path}/store"], capture_output=True, text=True,
                          timeout=100, check=True)
    assert done.stdout.split() == ["StoreForked", "closed"], done.stderr
