"""Distinct values of rows that are only inserted, and joins with those of their key: what they emit, and that each
value is stored once and nowhere else, whichever side comes first, however often it comes."""

import random
from contextlib import ExitStack

import duckdb
import pytest

from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.stored_views import entries, tables_of

SEEN = "(SELECT DISTINCT shop, visitor FROM seen WHERE shop <> 9) s"
QUERIES = {
    "v": f"SELECT o.id, o.shop, s.visitor FROM orders o JOIN {SEEN} ON o.shop = s.shop AND o.buyer = s.visitor",
    "w": f"SELECT o.id, s.shop FROM orders o LEFT JOIN {SEEN} ON o.shop = s.shop AND o.buyer = s.visitor"
         " AND s.visitor < 'v4'",
    "x": "SELECT s.shop, s.visitor FROM (SELECT DISTINCT shop, visitor FROM seen) s JOIN (SELECT shop, buyer FROM log"
         " GROUP BY buyer, shop) l ON l.buyer = s.visitor AND l.shop = s.shop",
    "y": f"SELECT o.id FROM orders o WHERE (o.shop, o.buyer) IN (SELECT shop, visitor FROM {SEEN})",
    "z": "SELECT o.id, s.shop FROM orders o JOIN (SELECT DISTINCT shop FROM seen) s ON o.shop IS NOT DISTINCT FROM"
         " s.shop",
}
DISTINCT = {"d": "SELECT DISTINCT shop, visitor FROM seen", "u": "SELECT shop FROM seen UNION SELECT shop FROM log",
            "g": "SELECT buyer, shop FROM log GROUP BY GROUPING SETS ((buyer, shop), (shop))"}
SCHEMAS = {"orders": "id INT PRIMARY KEY, shop BIGINT, buyer VARCHAR", "seen": "shop INT, visitor VARCHAR",
           "log": "shop BIGINT, buyer VARCHAR"}
STEPS = amount(6, 12)


def rows_of(session, query):
    return sorted((tuple(row.values()) for row in session.sql(query).rows()), key=repr)


def some(rng, columns):
    shop = rng.choice(["NULL", 9, *range(6)])
    visitor = rng.choice(["NULL", *(f"'v{number}'" for number in range(8))])
    return f"({', '.join(map(str, [*columns, shop, visitor]))})"


def changes_of(rng, orders):
    """A few statements, in any order."""
    new = ", ".join(some(rng, [orders + at]) for at in range(20))
    changes = [f"INSERT INTO orders VALUES {new}", f"DELETE FROM orders WHERE id % 13 = {rng.randrange(13)}",
               f"UPDATE orders SET shop = shop + 1 WHERE id % 11 = {rng.randrange(11)}"]
    for name in rng.sample(["seen", "log", "seen"], 3):
        changes.append(f"INSERT INTO {name} VALUES {', '.join(some(rng, []) for _ in range(rng.randrange(1, 30)))}")
    return rng.sample(changes, len(changes))


def stored(session, view, epoch):
    """The numbers of rows of the tables of the joins of a view, and of groups."""
    tables = tables_of(session, view)
    counts = {table.name.rsplit(".", 1)[1]: len(list(entries(session, table, epoch)))
              for table in tables if ".join" in table.name}
    return counts | {"groups": sum(".agg" in table.name for table in tables)}


@pytest.mark.parametrize(("engines", "options"), [
    ((0,), {}), ((0,), {"state_cache_bytes": 1}), ((0,), {"parallelism": 3, "chunk_rows": 16}),
    ((0, 2), {}), ((2,), {"state_cache_bytes": 1})],
    ids=["graph", "graph that evicts", "three actors", "both engines", "tasks that evict"])
def test_each_value_counts_once(engines, options):
    rng, duck = random.Random(run_seed()), duckdb.connect()
    with ExitStack() as undo:
        store = EngineStore(undo)
        session = store.open(slots=engines[0], **options)
        for name, columns in SCHEMAS.items():
            session.sql(f"CREATE TABLE {name} ({columns}){'' if name == 'orders' else ' APPEND ONLY'}")
            duck.execute(f"CREATE TABLE {name} ({columns})")
        for name, query in (QUERIES | DISTINCT).items():
            session.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for step in range(STEPS):
            if step == STEPS // 2:
                session.close()
                session = store.open(slots=engines[-1], **options)
            for change in changes_of(rng, 20 * step):
                session.sql(change)
                duck.execute(change)
                if rng.random() < 0.3:
                    session.flush()
            session.flush()
            for name, query in (QUERIES | DISTINCT).items():
                assert rows_of(session, f"SELECT * FROM {name}") == sorted(duck.sql(query).fetchall(), key=repr), name
        epoch = session.flush()
        (values,), (pairs,) = (duck.sql(f"SELECT count(*) FROM (SELECT DISTINCT shop, {column} FROM {table}) "
                                        f"WHERE shop IS NOT NULL AND {column} IS NOT NULL").fetchall()[0]
                               for table, column in (("seen", "visitor"), ("log", "buyer")))
        assert stored(session, "x", epoch) == {"left": values, "right": pairs, "groups": 0}
        assert stored(session, "z", epoch)["groups"] == stored(session, "v", epoch)["groups"] == 0
        for name in DISTINCT:
            groups = [table for table in tables_of(session, name) if table.name.endswith(".groups")]
            assert [len({value for _, value in entries(session, table, epoch)}) for table in groups] == [1]
