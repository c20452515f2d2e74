"""User functions in Python workers of Spark: their text travels with the plan of a view."""

import pytest

import stream
from stream.errors import BackfillRefused

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
DEFINITIONS = """
CREATE FUNCTION worker(a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE AS $$
import os
import pyarrow as pa
def worker(a):
    return pa.array([os.getpid()] * len(a))
$$;
CREATE FUNCTION parts(a BIGINT) RETURNS TABLE (part BIGINT) LANGUAGE python IMMUTABLE STRICT AS $$
import numpy as np
def parts(a):
    counts = np.asarray(a) % 3
    rows = np.repeat(np.arange(len(a)), counts)
    return rows, np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
$$;
CREATE AGGREGATE middle(v BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE WITH (row_wise = true) AS $$
def middle(v): return sorted(v)[len(v) // 2]
$$;
CREATE AGGREGATE total(v BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE WITH (state = 'bigint') AS $$
import numpy as np
import pyarrow.compute as pc
def changed(states, groups, v, sign):
    return pc.fill_null(states, 0).to_numpy() + sign * np.bincount(groups, v, minlength=len(states)).astype(np.int64)
def accumulate(states, groups, v): return changed(states, groups, v, 1)
def retract(states, groups, v): return changed(states, groups, v, -1)
def finish(states): return states
$$
"""
PARTS = ("SELECT t.a % 10 AS g, total(r.part) AS s, count(worker(t.a)) AS n FROM t, parts(a) AS r "
         "GROUP BY t.a % 10")
MIDDLES = "SELECT a % 10 AS g, middle(a) AS m, count(*) AS n FROM t GROUP BY a % 10"


def rows(session, query):
    return sorted(tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist())


def test_functions_run_in_tasks(spark, tmp_path):
    url, options = f"file://{tmp_path}", {"allow_user_functions": True, "inbox_poll_ms": 0}
    with stream.connect(url, create=True, **options) as session:
        session.sql("CREATE TABLE t (a BIGINT PRIMARY KEY)")
        session.table("t").insert([(each,) for each in range(3_000)])
        session.sql(DEFINITIONS)
        session.flush()
        session.create_materialized_view("loaded", session.sql(PARTS), backfill=spark)
        with pytest.raises(BackfillRefused, match="middle cannot run in a task"):
            session.create_materialized_view("middles", session.sql(MIDDLES), backfill=spark)
        session.sql(f"CREATE MATERIALIZED VIEW middles AS {MIDDLES}")
        session.sql("CREATE MATERIALIZED VIEW followed AS SELECT a, worker(a) AS p FROM t")
        here = rows(session, "SELECT DISTINCT p FROM followed")
    with stream.connect(url, create=True, engine=spark, driver_rows=0, task_rows=1, **options) as session:
        session.table("t").insert([(each,) for each in range(3_000, 3_100)])
        session.sql("DELETE FROM t WHERE a % 7 = 0")
        session.flush()
        for view, query in (("loaded", PARTS), ("middles", MIDDLES)):
            assert rows(session, f"SELECT * FROM {view}") == rows(session, query)
        assert not set(rows(session, "SELECT DISTINCT p FROM followed WHERE a >= 3000")) & set(here)
